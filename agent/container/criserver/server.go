// Package criserver serves a container.Runtime as CRI v1, for clients such as crictl, critest
// and a kubelet.
//
// Clients may use the beginning of an ID in place of the ID, as crictl shows it. Sessions of
// exec, attach and port-forward are HTTP on a Unix socket inside the agent. Clients of CRI need
// a URL: the server forwards them from a TCP listener on localhost. Such a URL has a token that
// is valid once and for a minute.
package criserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// maxRequest bounds a request in bytes, as containerd does.
const maxRequest = 16 << 20

// Server serves one runtime. Its methods are safe for concurrent use.
type Server struct {
	grpc     *grpc.Server
	sessions *sessions // nil without
}

// New returns a server of a runtime. It forwards the sessions of its clients from a listener,
// or leaves their URLs as they are if that is nil.
func New(rt container.Runtime, forward net.Listener) *Server {
	s := &Server{grpc: grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))}
	if forward != nil {
		s.sessions = newSessions(forward)
	}
	stats, _ := rt.(Stats)
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, &service{rt: rt, stats: stats, sessions: s.sessions})
	runtimeapi.RegisterImageServiceServer(s.grpc, &imageService{rt: rt})
	return s
}

// Serve serves the connections of a listener, which it closes, until Stop. It returns nil then.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop breaks all connections and ends all sessions.
func (s *Server) Stop() {
	s.sessions.close()
	s.grpc.Stop()
}

// Listen listens on a Unix socket, which only root can connect to, in place of what is at its
// path.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("serve CRI: %w", err), l.Close())
	}
	return l, nil
}

type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	rt       container.Runtime
	stats    Stats // nil without
	sessions *sessions
}

// idLength is the length of an ID. Shorter ones are prefixes, as clients show them.
const idLength = 64

// sandboxID returns the ID with a prefix, or the prefix if there is not one of it.
func (s *service) sandboxID(ctx context.Context, prefix string) string {
	if prefix == "" || len(prefix) >= idLength {
		return prefix
	}
	all, err := s.rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return prefix // the call itself has the error
	}
	ids := make([]string, 0, len(all))
	for _, p := range all {
		ids = append(ids, p.GetId())
	}
	return only(ids, prefix)
}

// containerID returns the ID with a prefix, or the prefix if there is not one of it.
func (s *service) containerID(ctx context.Context, prefix string) string {
	if prefix == "" || len(prefix) >= idLength {
		return prefix
	}
	all, err := s.rt.ListContainers(ctx, nil)
	if err != nil {
		return prefix
	}
	ids := make([]string, 0, len(all))
	for _, c := range all {
		ids = append(ids, c.GetId())
	}
	return only(ids, prefix)
}

// only returns the one ID that has a prefix, or the prefix.
func only(ids []string, prefix string) string {
	found := prefix
	for _, id := range ids {
		switch {
		case !strings.HasPrefix(id, prefix):
		case found != prefix:
			return prefix
		default:
			found = id
		}
	}
	return found
}

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	rt container.Runtime
}

// grpcError maps the errors of package container to gRPC's codes.
func grpcError(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, container.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, container.ErrUnavailable):
		code = codes.Unavailable
	case errors.Is(err, container.ErrUnsupported):
		code = codes.Unimplemented
	case errors.Is(err, container.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, err.Error())
}

func (s *service) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.rt.RunPodSandbox(ctx, r.GetConfig(), r.GetRuntimeHandler())
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, grpcError(err)
}

func (s *service) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, grpcError(s.rt.StopPodSandbox(ctx, s.sandboxID(ctx, r.GetPodSandboxId())))
}

func (s *service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, grpcError(s.rt.RemovePodSandbox(ctx, s.sandboxID(ctx, r.GetPodSandboxId())))
}

func (s *service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	st, err := s.rt.PodSandboxStatus(ctx, s.sandboxID(ctx, r.GetPodSandboxId()))
	return &runtimeapi.PodSandboxStatusResponse{Status: st}, grpcError(err)
}

func (s *service) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if f := r.GetFilter(); f != nil {
		f.Id = s.sandboxID(ctx, f.GetId())
	}
	items, err := s.rt.ListPodSandbox(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, grpcError(err)
}

func (s *service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.rt.CreateContainer(ctx, s.sandboxID(ctx, r.GetPodSandboxId()), r.GetConfig(), r.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, grpcError(err)
}

func (s *service) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, grpcError(s.rt.StartContainer(ctx, s.containerID(ctx, r.GetContainerId())))
}

func (s *service) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	err := s.rt.StopContainer(ctx, s.containerID(ctx, r.GetContainerId()), time.Duration(r.GetTimeout())*time.Second)
	return &runtimeapi.StopContainerResponse{}, grpcError(err)
}

func (s *service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, grpcError(s.rt.UpdateContainerResources(ctx, s.containerID(ctx, r.GetContainerId()), r.GetLinux()))
}

func (s *service) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, grpcError(s.rt.RemoveContainer(ctx, s.containerID(ctx, r.GetContainerId())))
}

func (s *service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	st, err := s.rt.ContainerStatus(ctx, s.containerID(ctx, r.GetContainerId()))
	return &runtimeapi.ContainerStatusResponse{Status: st}, grpcError(err)
}

func (s *service) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if f := r.GetFilter(); f != nil {
		f.Id, f.PodSandboxId = s.containerID(ctx, f.GetId()), s.sandboxID(ctx, f.GetPodSandboxId())
	}
	list, err := s.rt.ListContainers(ctx, r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: list}, grpcError(err)
}

func (s *service) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	stdout, stderr, code, err := s.rt.ExecSync(ctx, s.containerID(ctx, r.GetContainerId()), r.GetCmd(), time.Duration(r.GetTimeout())*time.Second)
	return &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: code}, grpcError(err)
}

func (s *service) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, grpcError(s.rt.ReopenContainerLog(ctx, s.containerID(ctx, r.GetContainerId())))
}

func (s *service) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	r.ContainerId = s.containerID(ctx, r.ContainerId)
	url, err := s.rt.Exec(ctx, r)
	return &runtimeapi.ExecResponse{Url: s.sessions.url(url)}, grpcError(err)
}

func (s *service) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	r.ContainerId = s.containerID(ctx, r.ContainerId)
	url, err := s.rt.Attach(ctx, r)
	return &runtimeapi.AttachResponse{Url: s.sessions.url(url)}, grpcError(err)
}

func (s *service) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r.PodSandboxId = s.sandboxID(ctx, r.PodSandboxId)
	url, err := s.rt.PortForward(ctx, r)
	return &runtimeapi.PortForwardResponse{Url: s.sessions.url(url)}, grpcError(err)
}

func (s *service) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	v, err := s.rt.Version(ctx)
	return v, grpcError(err)
}

func (s *service) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	st, err := s.rt.Status(ctx)
	return st, grpcError(err)
}

func (s *service) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	c, err := s.rt.RuntimeConfig(ctx)
	return c, grpcError(err)
}

// UpdateRuntimeConfig accepts what a kubelet sends: the ranges of the pods' addresses, which the
// runtime has from its own configuration.
func (s *service) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (s *service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	err := s.rt.ContainerEvents(ctx, func() {}, func(e *runtimeapi.ContainerEventResponse) {
		if err := stream.Send(e); err != nil {
			cancel(err)
		}
	})
	return grpcError(err)
}

func (s *imageService) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	img, err := s.rt.ImageStatus(ctx, r.GetImage())
	if err == nil && img == nil {
		if spec := s.imageID(ctx, r.GetImage()); spec != r.GetImage() {
			img, err = s.rt.ImageStatus(ctx, spec)
		}
	}
	return &runtimeapi.ImageStatusResponse{Image: img}, grpcError(err)
}

// imageID returns the image with the ID of which the name is a prefix without the algorithm, or
// the image unchanged.
func (s *imageService) imageID(ctx context.Context, image *runtimeapi.ImageSpec) *runtimeapi.ImageSpec {
	prefix := image.GetImage()
	if prefix == "" || strings.Trim(prefix, "0123456789abcdef") != "" {
		return image
	}
	all, err := s.rt.ListImages(ctx, nil)
	if err != nil {
		return image // the call itself has the error
	}
	ids := make([]string, 0, len(all))
	for _, i := range all {
		_, encoded, _ := strings.Cut(i.GetId(), ":")
		ids = append(ids, encoded)
	}
	id := only(ids, prefix)
	if id == prefix {
		return image
	}
	return &runtimeapi.ImageSpec{Image: id, Annotations: image.GetAnnotations()}
}

func (s *imageService) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.rt.PullImage(ctx, r.GetImage(), r.GetAuth(), r.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, grpcError(err)
}

func (s *imageService) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	list, err := s.rt.ListImages(ctx, r.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: list}, grpcError(err)
}

func (s *imageService) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	// A name comes before the prefix of an ID (LocalResolve in containerd's
	// internal/cri/server/images/service.go).
	spec := r.GetImage()
	if img, err := s.rt.ImageStatus(ctx, spec); err == nil && img == nil {
		spec = s.imageID(ctx, spec)
	}
	return &runtimeapi.RemoveImageResponse{}, grpcError(s.rt.RemoveImage(ctx, spec))
}

func (s *imageService) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	info, err := s.rt.ImageFsInfo(ctx)
	return info, grpcError(err)
}
