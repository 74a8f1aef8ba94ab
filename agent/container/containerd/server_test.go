package containerd

import (
	"bytes"
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	contentapi "github.com/containerd/containerd/api/services/content/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// storedBlob is a blob with its labels.
type storedBlob struct {
	data   []byte
	labels map[string]string
}

// server is an in-memory containerd with the behavior of its content service
// (plugins/services/content/contentserver).
type server struct {
	t    testing.TB
	grpc *grpc.Server

	mu         sync.Mutex
	blobs      map[digest.Digest]storedBlob
	ingests    map[string][]byte
	images     map[string]string // media types and digests by name
	leases     map[string]bool
	tasks      map[string]task.Status
	containers []*containersapi.Container
	snapshots  map[string]bool  // "snapshotter key"
	unpacked   []string         // "content on parent", in order
	refusals   map[string]error // by method
	filters    []string         // of the last list of containers
	calls      []string
	sent       int // bytes of content received
	messages   int // with content
	cut        int // ends a stream after so many bytes, once
}

func serve(t testing.TB) (*server, string) {
	t.Helper()
	s := &server{t: t, blobs: map[digest.Digest]storedBlob{}, ingests: map[string][]byte{}, images: map[string]string{}, leases: map[string]bool{}}
	s.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := s.begin(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.begin(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	)
	contentapi.RegisterContentServer(s.grpc, contentServer{server: s})
	imagesapi.RegisterImagesServer(s.grpc, imageServer{server: s})
	leasesapi.RegisterLeasesServer(s.grpc, leaseServer{server: s})
	containersapi.RegisterContainersServer(s.grpc, containerServer{server: s})
	tasksapi.RegisterTasksServer(s.grpc, taskServer{server: s})
	snapshotsapi.RegisterSnapshotsServer(s.grpc, snapshotServer{server: s})
	diffapi.RegisterDiffServer(s.grpc, diffServer{server: s})
	return s, listen(t, s.grpc)
}

// listen serves g on a new socket until the test's end, and returns its endpoint.
func listen(t testing.TB, g *grpc.Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctd") // t.TempDir() may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return "unix://" + path
}

// begin records a call, checks its namespace and lease, and returns its refusal.
func (s *server) begin(ctx context.Context, method string) error {
	method = strings.TrimPrefix(method, "/containerd.services.")
	md, _ := metadata.FromIncomingContext(ctx)
	if ns := md.Get("containerd-namespace"); len(ns) != 1 || ns[0] != namespace {
		s.t.Errorf("%s has the namespace %q", method, ns)
	}
	if l := md.Get("containerd-lease"); strings.HasPrefix(method, "content.") && (len(l) != 1 || l[0] != leaseID) {
		s.t.Errorf("%s has the lease %q", method, l)
	}
	if _, limited := ctx.Deadline(); !limited && method != "content.v1.Content/Write" && method != "diff.v1.Diff/Apply" {
		s.t.Errorf("%s has no deadline", method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method)
	return s.refusals[method]
}

type leaseServer struct {
	leasesapi.UnimplementedLeasesServer
	*server
}

func (s leaseServer) Create(_ context.Context, r *leasesapi.CreateRequest) (*leasesapi.CreateResponse, error) {
	if s.leases[r.ID] {
		return nil, status.Error(codes.AlreadyExists, "lease exists")
	}
	s.leases[r.ID] = true
	return &leasesapi.CreateResponse{Lease: &leasesapi.Lease{ID: r.ID}}, nil
}

func (s leaseServer) Delete(_ context.Context, r *leasesapi.DeleteRequest) (*emptypb.Empty, error) {
	if !s.leases[r.ID] {
		return nil, status.Error(codes.NotFound, "no lease")
	}
	delete(s.leases, r.ID)
	return &emptypb.Empty{}, nil
}

type imageServer struct {
	imagesapi.UnimplementedImagesServer
	*server
}

func (s imageServer) Create(_ context.Context, r *imagesapi.CreateImageRequest) (*imagesapi.CreateImageResponse, error) {
	if s.images[r.Image.Name] != "" {
		return nil, status.Error(codes.AlreadyExists, "image")
	}
	s.tag(r.Image)
	return &imagesapi.CreateImageResponse{Image: r.Image}, nil
}

func (s imageServer) Update(_ context.Context, r *imagesapi.UpdateImageRequest) (*imagesapi.UpdateImageResponse, error) {
	if s.images[r.Image.Name] == "" {
		return nil, status.Error(codes.NotFound, "image")
	}
	if !slices.Equal(r.UpdateMask.GetPaths(), []string{"target"}) {
		s.t.Error("an update that would change labels")
	}
	s.tag(r.Image)
	return &imagesapi.UpdateImageResponse{Image: r.Image}, nil
}

func (s imageServer) tag(image *imagesapi.Image) {
	target := image.Target
	if _, ok := s.blobs[digest.Digest(target.Digest)]; !ok || target.Size == 0 || target.MediaType == "" || len(target.Annotations) > 0 {
		s.t.Errorf("image %q has the target %v", image.Name, target)
	}
	if len(image.Labels) > 0 {
		s.t.Errorf("image %q has the labels %v: CRI would not give it a name by ID", image.Name, image.Labels)
	}
	s.images[image.Name] = target.MediaType + " " + target.Digest
}

type containerServer struct {
	containersapi.UnimplementedContainersServer
	*server
}

// ListStream returns all containers and ignores the filters.
func (s containerServer) ListStream(r *containersapi.ListContainersRequest, stream containersapi.Containers_ListStreamServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = r.Filters
	for _, c := range s.containers {
		if err := stream.Send(&containersapi.ListContainerMessage{Container: c}); err != nil {
			return err
		}
	}
	return nil
}

func (s containerServer) Delete(_ context.Context, r *containersapi.DeleteContainerRequest) (*emptypb.Empty, error) {
	n := len(s.containers)
	s.containers = slices.DeleteFunc(s.containers, func(c *containersapi.Container) bool { return c.ID == r.ID })
	if len(s.containers) == n {
		return nil, status.Error(codes.NotFound, "no container")
	}
	return &emptypb.Empty{}, nil
}

type taskServer struct {
	tasksapi.UnimplementedTasksServer
	*server
}

func (s taskServer) Get(_ context.Context, r *tasksapi.GetRequest) (*tasksapi.GetResponse, error) {
	state, known := s.tasks[r.ContainerID]
	if !known {
		return nil, status.Errorf(codes.NotFound, "container %q: not found", r.ContainerID)
	}
	if state == task.Status_UNKNOWN {
		return &tasksapi.GetResponse{}, nil
	}
	return &tasksapi.GetResponse{Process: &task.Process{ID: r.ContainerID, Pid: 4711, Status: state, ExitStatus: 137}}, nil
}

func (s taskServer) Delete(_ context.Context, r *tasksapi.DeleteTaskRequest) (*tasksapi.DeleteResponse, error) {
	if _, known := s.tasks[r.ContainerID]; !known {
		return nil, status.Error(codes.NotFound, "no task")
	}
	delete(s.tasks, r.ContainerID)
	return &tasksapi.DeleteResponse{ID: r.ContainerID}, nil
}

type snapshotServer struct {
	snapshotsapi.UnimplementedSnapshotsServer
	*server
}

func (s snapshotServer) Remove(_ context.Context, r *snapshotsapi.RemoveSnapshotRequest) (*emptypb.Empty, error) {
	key := r.Snapshotter + " " + r.Key
	if !s.snapshots[key] {
		return nil, status.Error(codes.NotFound, "no snapshot")
	}
	delete(s.snapshots, key)
	return &emptypb.Empty{}, nil
}

func (s snapshotServer) Stat(_ context.Context, r *snapshotsapi.StatSnapshotRequest) (*snapshotsapi.StatSnapshotResponse, error) {
	if !s.snapshots[r.Snapshotter+" "+r.Key] {
		return nil, status.Error(codes.NotFound, "no snapshot")
	}
	return &snapshotsapi.StatSnapshotResponse{Info: &snapshotsapi.Info{Name: r.Key}}, nil
}

func (s snapshotServer) Prepare(_ context.Context, r *snapshotsapi.PrepareSnapshotRequest) (*snapshotsapi.PrepareSnapshotResponse, error) {
	key := r.Snapshotter + " " + r.Key
	if s.snapshots[key] {
		return nil, status.Error(codes.AlreadyExists, "snapshot exists")
	}
	if r.Parent != "" && !s.snapshots[r.Snapshotter+" "+r.Parent] {
		return nil, status.Error(codes.NotFound, "no parent")
	}
	s.snapshots[key] = true
	return &snapshotsapi.PrepareSnapshotResponse{Mounts: []*types.Mount{{Type: "bind", Source: key, Target: r.Parent}}}, nil
}

func (s snapshotServer) Commit(_ context.Context, r *snapshotsapi.CommitSnapshotRequest) (*emptypb.Empty, error) {
	key := r.Snapshotter + " " + r.Name
	if s.snapshots[key] {
		return nil, status.Error(codes.AlreadyExists, "snapshot exists")
	}
	delete(s.snapshots, r.Snapshotter+" "+r.Key)
	s.snapshots[key] = true
	return &emptypb.Empty{}, nil
}

// diffServer has layers that are their own content.
type diffServer struct {
	diffapi.UnimplementedDiffServer
	*server
}

func (s diffServer) Apply(_ context.Context, r *diffapi.ApplyRequest) (*diffapi.ApplyResponse, error) {
	b, ok := s.blobs[digest.Digest(r.Diff.Digest)]
	if !ok {
		return nil, status.Error(codes.NotFound, "no content")
	}
	if !r.SyncFs {
		s.t.Error("a layer is not synced")
	}
	s.unpacked = append(s.unpacked, string(b.data)+" on "+r.Mounts[0].Target)
	return &diffapi.ApplyResponse{Applied: &types.Descriptor{Digest: digest.FromBytes(append([]byte("diff of "), b.data...)).String()}}, nil
}

type contentServer struct {
	contentapi.UnimplementedContentServer
	*server
}

func (s contentServer) Info(_ context.Context, r *contentapi.InfoRequest) (*contentapi.InfoResponse, error) {
	b, ok := s.blobs[digest.Digest(r.Digest)]
	if !ok {
		return nil, status.Error(codes.NotFound, "no content")
	}
	return &contentapi.InfoResponse{Info: &contentapi.Info{Digest: r.Digest, Size: int64(len(b.data))}}, nil
}

func (s contentServer) Read(r *contentapi.ReadContentRequest, stream contentapi.Content_ReadServer) error {
	s.mu.Lock()
	b := s.blobs[digest.Digest(r.Digest)]
	s.mu.Unlock()
	return stream.Send(&contentapi.ReadContentResponse{Offset: r.Offset, Data: b.data[r.Offset:]})
}

func (s contentServer) Update(_ context.Context, r *contentapi.UpdateRequest) (*contentapi.UpdateResponse, error) {
	d := digest.Digest(r.Info.Digest)
	b, ok := s.blobs[d]
	if !ok {
		return nil, status.Error(codes.NotFound, "no content")
	}
	if len(r.UpdateMask.GetPaths()) != len(r.Info.Labels) {
		s.t.Errorf("the mask %q is not of the labels %v", r.UpdateMask.GetPaths(), r.Info.Labels)
	}
	b.labels = maps.Clone(b.labels)
	if b.labels == nil {
		b.labels = map[string]string{}
	}
	maps.Copy(b.labels, r.Info.Labels)
	s.blobs[d] = b
	return &contentapi.UpdateResponse{Info: r.Info}, nil
}

func (s contentServer) Abort(_ context.Context, r *contentapi.AbortRequest) (*emptypb.Empty, error) {
	delete(s.ingests, r.Ref)
	return &emptypb.Empty{}, nil
}

func (s contentServer) Write(stream contentapi.Content_WriteServer) error {
	ref, total, expected := "", int64(0), digest.Digest("")
	for first := true; ; first = false {
		r, err := stream.Recv()
		if err != nil {
			return err // the client has gone
		}
		if first {
			if ref = r.Ref; ref == "" {
				return status.Error(codes.InvalidArgument, "no ref")
			}
		}
		if r.Expected != "" {
			expected = digest.Digest(r.Expected)
		}
		if r.Total > 0 {
			total = r.Total
		}
		answer, end, err := s.step(ref, total, expected, r)
		if err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil || end {
			return err
		}
	}
}

func (s contentServer) step(ref string, total int64, expected digest.Digest, r *contentapi.WriteContentRequest) (answer *contentapi.WriteContentResponse, end bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[expected]; ok {
		delete(s.ingests, ref)
		return nil, true, status.Error(codes.AlreadyExists, "content exists")
	}
	data, sum := s.ingests[ref], digest.Digest("")
	if r.Action != contentapi.WriteAction_STAT {
		if r.Offset > 0 && r.Offset != int64(len(data)) {
			return nil, true, status.Error(codes.OutOfRange, "offset")
		} else if r.Offset == 0 {
			data = nil
		}
		if len(r.Data) > 0 {
			s.messages++
		}
		if len(r.Data) > chunk {
			s.t.Errorf("a request has %d bytes of content", len(r.Data))
		}
		data = append(data, r.Data...)
		s.sent += len(r.Data)
		s.ingests[ref] = data
		if s.cut > 0 && s.sent >= s.cut {
			s.cut = 0
			return nil, true, status.Error(codes.Unavailable, "power cut")
		}
		if r.Action == contentapi.WriteAction_COMMIT {
			if got := digest.FromBytes(data); got != expected || total != int64(len(data)) {
				return nil, true, status.Errorf(codes.FailedPrecondition, "unexpected commit digest %s", got)
			}
			s.blobs[expected] = storedBlob{data: bytes.Clone(data), labels: r.Labels}
			delete(s.ingests, ref)
			sum, end = expected, true
		}
	}
	return &contentapi.WriteContentResponse{Action: r.Action, Offset: int64(len(data)), Total: total, Digest: sum.String()}, end, nil
}
