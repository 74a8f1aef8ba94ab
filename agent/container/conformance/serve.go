package conformance

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Server serves a container.Runtime as CRI v1 over a unix socket, so that the
// cri driver can be tested with the fake.
type Server struct {
	// Endpoint is the socket as unix:///path.
	Endpoint string

	path string
	rt   container.Runtime
	grpc *grpc.Server
	done chan error
}

// Serve starts a server that stops with the test.
func Serve(t *testing.T, rt container.Runtime) *Server {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket.
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{path: filepath.Join(dir, "s"), rt: rt}
	s.Endpoint = "unix://" + s.path
	s.Start(t)
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// Start listens again after Stop.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.grpc = grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, &service{rt: s.rt})
	runtimeapi.RegisterImageServiceServer(s.grpc, &imageService{rt: s.rt})
	s.done = make(chan error, 1)
	go func() { s.done <- s.grpc.Serve(l) }()
}

// Stop breaks all connections and removes the socket.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if s.grpc == nil {
		return
	}
	s.grpc.Stop()
	if err := <-s.done; err != nil {
		t.Errorf("serve: %v", err)
	}
	s.grpc = nil
}

type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	rt container.Runtime
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
	return &runtimeapi.StopPodSandboxResponse{}, grpcError(s.rt.StopPodSandbox(ctx, r.GetPodSandboxId()))
}

func (s *service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, grpcError(s.rt.RemovePodSandbox(ctx, r.GetPodSandboxId()))
}

func (s *service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	st, err := s.rt.PodSandboxStatus(ctx, r.GetPodSandboxId())
	return &runtimeapi.PodSandboxStatusResponse{Status: st}, grpcError(err)
}

func (s *service) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.rt.ListPodSandbox(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, grpcError(err)
}

func (s *service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.rt.CreateContainer(ctx, r.GetPodSandboxId(), r.GetConfig(), r.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, grpcError(err)
}

func (s *service) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, grpcError(s.rt.StartContainer(ctx, r.GetContainerId()))
}

func (s *service) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	err := s.rt.StopContainer(ctx, r.GetContainerId(), time.Duration(r.GetTimeout())*time.Second)
	return &runtimeapi.StopContainerResponse{}, grpcError(err)
}

func (s *service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, grpcError(s.rt.UpdateContainerResources(ctx, r.GetContainerId(), r.GetLinux()))
}

func (s *service) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, grpcError(s.rt.RemoveContainer(ctx, r.GetContainerId()))
}

func (s *service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	st, err := s.rt.ContainerStatus(ctx, r.GetContainerId())
	return &runtimeapi.ContainerStatusResponse{Status: st}, grpcError(err)
}

func (s *service) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	list, err := s.rt.ListContainers(ctx, r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: list}, grpcError(err)
}

func (s *service) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	stdout, stderr, code, err := s.rt.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), time.Duration(r.GetTimeout())*time.Second)
	return &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: code}, grpcError(err)
}

func (s *service) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, grpcError(s.rt.ReopenContainerLog(ctx, r.GetContainerId()))
}

func (s *service) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.rt.Exec(ctx, r)
	return &runtimeapi.ExecResponse{Url: url}, grpcError(err)
}

func (s *service) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := s.rt.Attach(ctx, r)
	return &runtimeapi.AttachResponse{Url: url}, grpcError(err)
}

func (s *service) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	url, err := s.rt.PortForward(ctx, r)
	return &runtimeapi.PortForwardResponse{Url: url}, grpcError(err)
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
	return &runtimeapi.ImageStatusResponse{Image: img}, grpcError(err)
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
	return &runtimeapi.RemoveImageResponse{}, grpcError(s.rt.RemoveImage(ctx, r.GetImage()))
}

func (s *imageService) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	info, err := s.rt.ImageFsInfo(ctx)
	return info, grpcError(err)
}
