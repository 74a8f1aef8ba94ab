package criserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criserver"
)

// stub is a runtime with the methods that the tests call.
type stub struct {
	container.Runtime
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	images     []*runtimeapi.Image
	err        error
	url        string
	got        []string
}

func (s *stub) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if f != nil {
		s.got = append(s.got, "sandbox "+f.GetId())
	}
	return s.sandboxes, s.err
}

func (s *stub) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if f != nil {
		s.got = append(s.got, "container "+f.GetId()+" of "+f.GetPodSandboxId())
	}
	return s.containers, s.err
}

func (s *stub) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return s.images, s.err
}

func (s *stub) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	for _, i := range s.images {
		if name := spec.GetImage(); slices.Contains(i.GetRepoTags(), name) || i.GetId() == name || i.GetId() == "sha256:"+name {
			return i, s.err
		}
	}
	return nil, s.err
}

func (s *stub) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	i, err := s.ImageStatus(ctx, spec)
	s.got = append(s.got, i.GetId())
	return err
}

func (s *stub) StartContainer(_ context.Context, id string) error {
	s.got = append(s.got, id)
	return s.err
}

func (s *stub) StopPodSandbox(_ context.Context, id string) error {
	s.got = append(s.got, id)
	return s.err
}

func (s *stub) Exec(context.Context, *runtimeapi.ExecRequest) (string, error) { return s.url, s.err }

// withStats is a stub with stats, of which those of IDs with "b" are not found.
type withStats struct{ *stub }

func (s withStats) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	if strings.HasPrefix(id, "b") {
		return nil, fmt.Errorf("container: %w", container.ErrNotFound)
	}
	return &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: id}}, nil
}

func (s withStats) PodSandboxStats(_ context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	if strings.HasPrefix(id, "b") {
		return nil, fmt.Errorf("sandbox: %w", container.ErrNotFound)
	}
	return &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: id}}, nil
}

// serve returns a client of a server.
func serve(t *testing.T, rt container.Runtime, forward net.Listener) runtimeapi.RuntimeServiceClient {
	t.Helper()
	return runtimeapi.NewRuntimeServiceClient(connect(t, rt, forward))
}

// connect serves a runtime until the test ends.
func connect(t *testing.T, rt container.Runtime, forward net.Listener) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // as if left by a killed one
		t.Fatal(err)
	}
	l, err := criserver.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	s := criserver.New(rt, forward)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestListen(t *testing.T) {
	if _, err := criserver.Listen(filepath.Join(t.TempDir(), "absent", "s")); err == nil {
		t.Error("listens in an absent directory")
	}
}

// TestShortIDs calls with the beginnings of IDs.
func TestShortIDs(t *testing.T) {
	id := func(start string) string { return start + strings.Repeat("0", 64-len(start)) }
	rt := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{{Id: id("a1")}, {Id: id("b1")}},
		containers: []*runtimeapi.Container{{Id: id("c12")}, {Id: id("c13")}},
	}
	c := serve(t, rt, nil)
	for _, tt := range []struct{ give, want string }{
		{"c12", id("c12")}, {id("c13"), id("c13")}, {"c1", "c1"}, {"d", "d"}, {"", ""}, {id("d"), id("d")},
	} {
		rt.got = nil
		if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: tt.give}); err != nil || rt.got[0] != tt.want {
			t.Errorf("container %q: %q, %v", tt.give, rt.got, err)
		}
	}
	rt.got = nil
	if _, err := c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "a"}); err != nil || rt.got[0] != id("a1") {
		t.Errorf("sandbox: %q, %v", rt.got, err)
	}
	rt.got = nil
	_, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: "c13", PodSandboxId: "b"}})
	if err != nil || rt.got[0] != "container "+id("c13")+" of "+id("b1") {
		t.Errorf("filter of containers: %q, %v", rt.got, err)
	}
	rt.got = nil
	if _, err := c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: "b"}}); err != nil || rt.got[0] != "sandbox "+id("b1") {
		t.Errorf("filter of sandboxes: %q, %v", rt.got, err)
	}
}

// TestShortImageIDs calls with the beginnings of IDs of images, before which names come.
func TestShortImageIDs(t *testing.T) {
	id := func(start string) string { return "sha256:" + start + strings.Repeat("0", 64-len(start)) }
	rt := &stub{images: []*runtimeapi.Image{{Id: id("a1")}, {Id: id("a2"), RepoTags: []string{"abc"}}, {Id: id("abc")}}}
	c := runtimeapi.NewImageServiceClient(connect(t, rt, nil))
	for give, want := range map[string]string{"a1": id("a1"), "abc": id("a2"), id("a1"): id("a1"), "a": "", "d": "", "": "", "x": "", "sha256:a": ""} {
		spec := &runtimeapi.ImageSpec{Image: give}
		r, err := c.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
		if err != nil || r.GetImage().GetId() != want {
			t.Errorf("image %q: %q, %v", give, r.GetImage().GetId(), err)
		}
		rt.got = nil
		if _, err := c.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec}); err != nil || rt.got[0] != want {
			t.Errorf("remove %q: %q, %v", give, rt.got, err)
		}
	}
}

func TestErrors(t *testing.T) {
	rt := &stub{}
	c := serve(t, rt, nil)
	for _, tt := range []struct {
		err  error
		want codes.Code
	}{
		{container.ErrNotFound, codes.NotFound},
		{container.ErrUnavailable, codes.Unavailable},
		{container.ErrUnsupported, codes.Unimplemented},
		{container.ErrTimeout, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{errors.New("other"), codes.Unknown},
	} {
		rt.err = fmt.Errorf("start container: %w", tt.err)
		_, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: strings.Repeat("a", 64)})
		if status.Code(err) != tt.want || !strings.Contains(err.Error(), rt.err.Error()) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
}

func TestStats(t *testing.T) {
	rt := &stub{sandboxes: []*runtimeapi.PodSandbox{{Id: "a"}, {Id: "b"}}, containers: []*runtimeapi.Container{{Id: "a"}, {Id: "b"}}}
	c := serve(t, rt, nil)
	if _, err := c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a runtime without stats: %v", err)
	}
	c = serve(t, withStats{rt}, nil)
	if list, err := c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{}); err != nil || len(list.GetStats()) != 1 {
		t.Errorf("stats of containers: %v, %v", list, err)
	}
	if list, err := c.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{}); err != nil || len(list.GetStats()) != 1 {
		t.Errorf("stats of sandboxes: %v, %v", list, err)
	}
	if _, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: "b"}); status.Code(err) != codes.NotFound {
		t.Errorf("stats of a container that was removed: %v", err)
	}
	if s, err := c.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "a"}); err != nil || s.GetStats().GetAttributes().GetId() != "a" {
		t.Errorf("stats of a sandbox: %v, %v", s, err)
	}
}

// TestSessions sends what a client and a runtime send to each other over a connection that was
// upgraded.
func TestSessions(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // the header's time is the test's
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s ", r.Header.Get("Upgrade"), r.URL.Path)
		_, _ = io.CopyN(conn, rw, 5)
	})}
	go func() { _ = server.Serve(inner) }()
	t.Cleanup(func() { _ = server.Close() })
	forward, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rt := &stub{url: "unix:" + socket + ":/exec/token"}
	c := serve(t, rt, forward)
	r, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "c"})
	if err != nil || r.GetUrl() != "http://"+forward.Addr().String()+"/exec/token" {
		t.Fatalf("%v, %v", r, err)
	}
	conn, err := net.Dial("tcp", forward.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /exec/token HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%+v, %v", response, err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.WriteString(conn, "hello") // a client waits for the response: httputil.ReverseProxy drops what comes before
	if got, err := io.ReadAll(in); err != nil || string(got) != "/exec/token hello" {
		t.Errorf("%q, %v", got, err)
	}
	rt.url = "http://127.0.0.1:1/exec/token"
	if r, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "c"}); err != nil || r.GetUrl() != rt.url {
		t.Errorf("a URL of the runtime's own: %v, %v", r, err)
	}
}
