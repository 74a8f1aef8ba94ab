package native

import (
	"context"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/native/sessions"
)

// sessionRuntime serves the clients of sessions.
type sessionRuntime struct{ *Driver }

var _ sessions.Runtime = sessionRuntime{}

// NewSessions returns the server of the driver's sessions. Its Run must be called. The driver
// has the URLs of its socket from then on.
func (d *Driver) NewSessions(socket string) (*sessions.Server, error) {
	s, err := sessions.New(socket, sessionRuntime{d})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions = s
	return s, nil
}

func (c sessionRuntime) Exec(ctx context.Context, id string, cmd []string, s sessions.Streams) (int32, error) {
	return c.exec(ctx, id, cmd, s)
}

func (c sessionRuntime) Attach(ctx context.Context, id string, s sessions.Streams) error {
	return c.attach(ctx, id, s)
}

func (c sessionRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	return c.portForward(ctx, id, port, stream)
}

// Exec implements container.Streams.
func (d *Driver) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	if _, err := d.running(r.GetContainerId()); err != nil {
		return "", fmt.Errorf("prepare command: %w", err)
	}
	return d.sessions.Exec(r)
}

// Attach implements container.Streams.
func (d *Driver) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	if _, err := d.running(r.GetContainerId()); err != nil {
		return "", fmt.Errorf("prepare attach: %w", err)
	}
	return d.sessions.Attach(r)
}

// PortForward implements container.Streams.
func (d *Driver) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	s, err := d.sandbox(r.GetPodSandboxId())
	if err != nil {
		return "", fmt.Errorf("prepare port forward: %w", err)
	}
	if s.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return "", fmt.Errorf("prepare port forward: sandbox %q is not ready", s.id)
	}
	return d.sessions.PortForward(r)
}
