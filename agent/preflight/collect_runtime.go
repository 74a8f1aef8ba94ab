package preflight

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// runtimeTimeout is the timeout of all requests to the runtime together.
const runtimeTimeout = 5 * time.Second

// queryRuntime reads the state of the runtime. sandbox returns the sandbox image if
// the runtime does not report it.
func queryRuntime(ctx context.Context, endpoint string, sandbox func(name, version string) string) Runtime {
	r := Runtime{Endpoint: endpoint}
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		r.Kind, r.Err = BadAddress, "not the address of a unix socket"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if r.Kind, r.Err = probeSocket(ctx, path); r.Kind != Answered {
		return r
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Kind, r.Err = BadAddress, err.Error()
		return r
	}
	defer conn.Close()
	err = r.query(ctx, runtimeapi.NewRuntimeServiceClient(conn))
	if err == nil {
		r.Sandbox.Name = cmp.Or(r.Info.SandboxImage, sandbox(r.Name, r.Version))
		err = r.Sandbox.query(ctx, runtimeapi.NewImageServiceClient(conn))
	}
	if err != nil {
		r.Kind, r.Err = Broken, status.Convert(err).Message()
		if status.Code(err) == codes.DeadlineExceeded || ctx.Err() != nil {
			r.Kind = NoResponse
		}
	}
	return r
}

// probeSocket connects once to distinguish the errors that gRPC does not.
func probeSocket(ctx context.Context, path string) (RuntimeFailure, string) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return Answered, ""
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NoSocket, err.Error()
	case errors.Is(err, fs.ErrPermission):
		return NotAllowed, err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return StaleSocket, err.Error()
	case ctx.Err() != nil, errors.Is(err, syscall.EAGAIN): // the accept queue is full
		return NoResponse, err.Error()
	}
	return BadAddress, err.Error()
}

func (r *Runtime) query(ctx context.Context, c runtimeapi.RuntimeServiceClient) error {
	v, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return err
	}
	r.Name, r.Version = v.GetRuntimeName(), v.GetRuntimeVersion()
	s, err := c.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return err
	}
	r.Info, _ = container.ParseInfo(s.GetInfo()) // incomplete on an error: the default directories
	for _, condition := range s.GetStatus().GetConditions() {
		c := &Condition{True: condition.GetStatus(), Reason: condition.GetReason(), Message: condition.GetMessage()}
		switch condition.GetType() {
		case runtimeapi.RuntimeReady:
			r.Ready = c
		case runtimeapi.NetworkReady:
			r.NetworkReady = c
		}
	}
	config, err := c.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented { // containerd before 2.0
		r.CgroupDriver = r.Info.CgroupDriver
		return nil
	}
	if err != nil {
		return err
	}
	if linux := config.GetLinux(); linux != nil {
		r.CgroupDriver = strings.ToLower(linux.GetCgroupDriver().String())
	}
	return nil
}
