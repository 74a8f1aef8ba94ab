package cri_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
)

func TestNewRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]cri.Config{
		"no logger":        {RuntimeEndpoint: "/run/x.sock"},
		"no endpoint":      {Log: log},
		"tcp":              {RuntimeEndpoint: "tcp://127.0.0.1:1", Log: log},
		"image over tcp":   {RuntimeEndpoint: "/run/x.sock", ImageEndpoint: "tcp://127.0.0.1:1", Log: log},
		"negative timeout": {RuntimeEndpoint: "/run/x.sock", Timeout: -1, Log: log},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := cri.New(c); err == nil {
				d.Close()
				t.Error("no error")
			}
		})
	}
}

func TestNoRuntime(t *testing.T) {
	d := newDriver(t, cri.Config{RuntimeEndpoint: filepath.Join(t.TempDir(), "none.sock")})
	_, err := d.Version(t.Context())
	if !errors.Is(err, container.ErrUnavailable) || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("Version: %v, want ErrUnavailable that names the socket", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = d.ContainerEvents(ctx, func() { t.Error("connected") }, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ContainerEvents: %v, want the end of its context", err)
	}
}

// TestReturn checks how soon a restarted runtime is detected.
func TestReturn(t *testing.T) {
	server := conformance.Serve(t, fake.New(fake.Config{}))
	d := newDriver(t, cri.Config{RuntimeEndpoint: server.Endpoint})
	if _, err := d.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	if _, err := d.Version(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("without the server: %v, want ErrUnavailable", err)
	}
	time.Sleep(2 * time.Second) // long enough for the backoff to reach its maximum
	server.Start(t)
	back := time.Now()
	for {
		_, err := d.Version(t.Context())
		if err == nil {
			break
		}
		if time.Since(back) > 10*time.Second {
			t.Fatalf("after ten seconds: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if took := time.Since(back); took > 3*time.Second {
		t.Errorf("the runtime's return was noticed after %v", took)
	}
}

func TestCallsAreTold(t *testing.T) {
	d := newDriver(t, cri.Config{RuntimeEndpoint: conformance.Serve(t, fake.New(fake.Config{})).Endpoint})
	if _, err := d.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ContainerStatus(t.Context(), "none"); !errors.Is(err, container.ErrNotFound) {
		t.Fatal(err)
	}
	var text strings.Builder
	out := metrics.NewStream(&text)
	d.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"_duration_seconds_count{operation_type=\"version\"} 1\n",
		"_total{operation_type=\"container_status\"} 1\n",
		"_errors_total{operation_type=\"container_status\"} 1\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// silent accepts connections and never answers, like a hung process.
func silent(t *testing.T) (endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func TestHung(t *testing.T) {
	t.Run("process", func(t *testing.T) {
		d, err := cri.New(cri.Config{RuntimeEndpoint: silent(t), Timeout: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() // before the server, which waits for its connections
		if _, err := d.Version(t.Context()); !errors.Is(err, container.ErrTimeout) {
			t.Errorf("Version: %v, want ErrTimeout", err)
		}
	})
	t.Run("service", func(t *testing.T) {
		rt := fake.New(fake.Config{})
		server := conformance.Serve(t, rt)
		d := newDriver(t, cri.Config{RuntimeEndpoint: server.Endpoint, Timeout: 200 * time.Millisecond})
		rt.Hang()
		defer rt.Resume()
		for name, call := range map[string]func() error{
			"Version":         func() error { _, err := d.Version(t.Context()); return err },
			"RunPodSandbox":   func() error { _, err := d.RunPodSandbox(t.Context(), nil, ""); return err },
			"RemoveContainer": func() error { return d.RemoveContainer(t.Context(), "x") },
		} {
			if err := call(); !errors.Is(err, container.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want ErrTimeout and no end of the caller's", name, err)
			}
		}
		err := d.ContainerEvents(t.Context(), func() { t.Error("connected to a hung runtime") }, nil)
		if !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("ContainerEvents: %v, want ErrUnavailable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if _, err := d.PullImage(ctx, nil, nil, nil); !errors.Is(err, container.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("PullImage: %v, want the caller's end", err)
		}
		if time.Since(begun) < 400*time.Millisecond {
			t.Error("the driver's limit ended a pull")
		}
	})
}

// scripted is a server whose calls fail with a given error.
type scripted struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	err error
}

func (s *scripted) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{}, nil
}

func (s *scripted) StartContainer(context.Context, *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.err
}

func (s *scripted) StopContainer(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.err
}

func (s *scripted) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{}, s.err
}

func (s *scripted) PullImage(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{}, s.err
}

func (s *scripted) RunPodSandbox(context.Context, *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	return &runtimeapi.RunPodSandboxResponse{}, s.err
}

func (s *scripted) GetContainerEvents(*runtimeapi.GetEventsRequest, runtimeapi.RuntimeService_GetContainerEventsServer) error {
	return s.err
}

func serveScripted(t *testing.T, s *scripted) *cri.Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return newDriver(t, cri.Config{RuntimeEndpoint: l.Addr().String()})
}

func TestErrors(t *testing.T) {
	kinds := []error{container.ErrNotFound, container.ErrUnavailable, container.ErrTimeout, container.ErrUnsupported}
	tests := []struct {
		code codes.Code
		want error
	}{
		{codes.NotFound, container.ErrNotFound},
		{codes.Unavailable, container.ErrUnavailable},
		{codes.DeadlineExceeded, container.ErrTimeout},
		{codes.Unimplemented, container.ErrUnsupported},
		{codes.Canceled, container.ErrUnavailable},
		{codes.Unknown, nil},
		{codes.Internal, nil},
		{codes.ResourceExhausted, nil},
	}
	for _, tt := range tests {
		t.Run(tt.code.String(), func(t *testing.T) {
			d := serveScripted(t, &scripted{err: status.Error(tt.code, "the runtime's words")})
			err := d.StartContainer(t.Context(), "c1")
			for _, kind := range kinds {
				if errors.Is(err, kind) != errors.Is(tt.want, kind) {
					t.Errorf("%v is %v: %v", err, kind, errors.Is(err, kind))
				}
			}
			if text := err.Error(); !strings.HasPrefix(text, `start container "c1": `) || !strings.HasSuffix(text, "the runtime's words") {
				t.Errorf("the error reads %q", text)
			}
			if err := d.StopContainer(t.Context(), "c1", 0); (err == nil) != (tt.code == codes.NotFound) {
				t.Errorf("StopContainer: %v", err)
			}
			// A pull's status is the registry's, unless the runtime is away.
			_, err = d.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "busybox"}, nil, nil)
			want := `pull image "busybox": the runtime's words`
			if tt.code == codes.Unavailable {
				want = `pull image "busybox": ` + container.ErrUnavailable.Error() + ": the runtime's words"
			}
			if err.Error() != want || errors.Is(err, container.ErrUnavailable) != (tt.code == codes.Unavailable) {
				t.Errorf("PullImage: %v, want %s", err, want)
			}

			err = d.ContainerEvents(t.Context(), func() {}, func(*runtimeapi.ContainerEventResponse) {})
			kind := container.ErrUnavailable
			if tt.code == codes.Unimplemented {
				kind = container.ErrUnsupported
			}
			if !errors.Is(err, kind) {
				t.Errorf("ContainerEvents: %v, want %v", err, kind)
			}
		})
	}
}

func TestEmptyAnswers(t *testing.T) {
	d := serveScripted(t, &scripted{})
	if s, err := d.ContainerStatus(t.Context(), "c1"); err == nil {
		t.Errorf("an empty status is %v", s)
	}
	if id, err := d.RunPodSandbox(t.Context(), nil, ""); err == nil {
		t.Errorf("an empty ID is %q", id)
	}
	err := d.ContainerEvents(t.Context(), func() {}, func(*runtimeapi.ContainerEventResponse) {})
	if !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("a stream that the runtime ends: %v, want ErrUnavailable", err)
	}
}

func TestLongGrace(t *testing.T) {
	rt := fake.New(fake.Config{})
	d := newDriver(t, cri.Config{RuntimeEndpoint: conformance.Serve(t, rt).Endpoint})
	if err := d.StopContainer(t.Context(), "gone", math.MaxInt64); err != nil {
		t.Errorf("the longest grace: %v", err)
	}
	if err := d.StopContainer(t.Context(), "gone", -time.Hour); err != nil {
		t.Errorf("a negative grace: %v", err)
	}
}

// TestExecLimits shows which limit ends a command: its own, the driver's
// where the runtime hangs, or, without one of its own, only the caller's.
func TestExecLimits(t *testing.T) {
	rt := fake.New(fake.Config{})
	d := newDriver(t, cri.Config{RuntimeEndpoint: conformance.Serve(t, rt).Endpoint, Timeout: 200 * time.Millisecond})
	rt.Hang()
	defer rt.Resume()
	begun := time.Now()
	_, _, _, err := d.ExecSync(t.Context(), "c1", []string{"true"}, 500*time.Millisecond)
	// The server may end first: it has the rest of the time, in whole microseconds.
	if took := time.Since(begun); !errors.Is(err, container.ErrTimeout) || took < 690*time.Millisecond || took > 5*time.Second {
		t.Errorf("a hung runtime: %v after %v, want ErrTimeout after 700ms", err, took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	begun = time.Now()
	_, _, _, err = d.ExecSync(ctx, "c1", []string{"true"}, 0)
	if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took < 350*time.Millisecond {
		t.Errorf("a command without a limit: %v after %v, want the caller's end", err, took)
	}
}

func TestClosed(t *testing.T) {
	server := conformance.Serve(t, fake.New(fake.Config{}))
	d, err := cri.New(cri.Config{RuntimeEndpoint: server.Endpoint, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	open := make(chan struct{})
	go func() {
		ended <- d.ContainerEvents(t.Context(), func() { close(open) }, func(*runtimeapi.ContainerEventResponse) {})
	}()
	<-open
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("the stream ended with %v, want ErrUnavailable", err)
	}
	if _, err := d.Version(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Version: %v, want ErrUnavailable", err)
	}
	if _, err := d.PullImage(t.Context(), nil, nil, nil); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("PullImage: %v, want ErrUnavailable", err)
	}
}

func TestTwoEndpoints(t *testing.T) {
	rt, images := fake.New(fake.Config{}), fake.New(fake.Config{})
	d := newDriver(t, cri.Config{
		RuntimeEndpoint: conformance.Serve(t, rt).Endpoint,
		ImageEndpoint:   conformance.Serve(t, images).Endpoint,
	})
	if _, err := d.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "busybox"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rt.Count("ImageStatus") != 0 || images.Count("ImageStatus") != 1 || rt.Count("Version") != 1 {
		t.Errorf("the runtime got %v, the image service %v", rt.Calls(), images.Calls())
	}
}

// TestNothingLeft shows that a closed driver leaves no goroutine behind.
func TestNothingLeft(t *testing.T) {
	endpoint := absentRuntime(t)
	before := runtime.NumGoroutine()
	for range 10 {
		d, err := cri.New(cri.Config{RuntimeEndpoint: endpoint, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.Version(t.Context())
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, before there were %d", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// absentRuntime is the endpoint of a runtime that is not there.
func absentRuntime(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "none.sock")
}
