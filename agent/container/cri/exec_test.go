package cri_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// rawServer answers every call with what answer writes, without the memory
// that a gRPC server takes for a message.
func rawServer(t *testing.T, answer http.HandlerFunc) (endpoint string) {
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
	s := &http.Server{Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, Handler: answer}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	return l.Addr().String()
}

// message writes the head of a gRPC message of n bytes.
func message(w io.Writer, n int) {
	_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)))
}

// printing answers as a runtime does whose command printed so many bytes to
// each output.
func printing(size int, code uint64) http.HandlerFunc {
	block := []byte(strings.Repeat("x", 64<<10))
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		exit := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), code)
		output := func(number protowire.Number) []byte {
			return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size))
		}
		message(w, len(output(1))+size+len(output(2))+size+len(exit))
		for number := range protowire.Number(2) {
			_, _ = w.Write(output(number + 1))
			for left := size; left > 0; left -= len(block) {
				_, _ = w.Write(block[:min(left, len(block))])
			}
		}
		_, _ = w.Write(exit)
		w.Header().Set("Grpc-Status", "0")
	}
}

// TestExecOutputIsBounded checks that a command with a large output costs the agent
// no more memory than what it keeps, and that its exit code is returned.
func TestExecOutputIsBounded(t *testing.T) {
	const size = 7 << 20 // of each output: a gRPC client takes more than 16 MiB for no message
	for _, code := range []int32{0, 3} {
		d := newDriver(t, cri.Config{RuntimeEndpoint: rawServer(t, printing(size, uint64(code)))})
		call := func() {
			stdout, stderr, got, err := d.ExecSync(t.Context(), "c", []string{"yes"}, time.Minute)
			if err != nil || got != code {
				t.Fatalf("code %d, %v, want %d", got, err, code)
			}
			if len(stdout) != container.MaxExecOutput || len(stderr) != container.MaxExecOutput || stdout[0] != 'x' {
				t.Errorf("%d bytes of stdout and %d of stderr", len(stdout), len(stderr))
			}
		}
		call() // opens the connection
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 4 {
			call()
		}
		runtime.ReadMemStats(&after)
		// The race detector has pools forget what is put into them; a gRPC
		// client took more than the message.
		if grown := (after.TotalAlloc - before.TotalAlloc) / 4; grown > 2*size {
			t.Errorf("a command that printed %d MiB took %d KiB of memory", 2*size>>20, grown>>10)
		}
	}
}

func TestExecAnswers(t *testing.T) {
	field := func(number protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), text)
	}
	varint := func(number protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
	}
	fixed := protowire.AppendFixed64(protowire.AppendTag(protowire.AppendFixed32(protowire.AppendTag(nil, 8, protowire.Fixed32Type), 1), 9, protowire.Fixed64Type), 1)
	join := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for _, tc := range []struct {
		name           string
		body           []byte // of the message
		claims         int    // its length, where that is not body's
		status, text   string
		stdout         string
		code           int32
		kind           error
		want           string // in the error
		notGRPC, early bool
	}{
		{name: "nothing printed", status: "0"},
		{name: "output", body: join(field(1, "a"), field(2, "b"), varint(3, 7)), status: "0", stdout: "a", code: 7},
		{name: "fields of later versions", body: join(field(6, "z"), fixed, varint(5, 1), field(1, "a")), status: "0", stdout: "a"},
		{name: "a code below zero", body: varint(3, 1<<64-1), status: "0", code: -1},
		{name: "a group", body: protowire.AppendTag(nil, 4, protowire.StartGroupType), status: "0", want: "not an ExecSyncResponse"},
		{name: "an output longer than its message", body: protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), 1<<62), status: "0", want: "not an ExecSyncResponse"},
		{name: "a number that never ends", body: []byte(strings.Repeat("\xff", 20)), status: "0", want: "not an ExecSyncResponse"},
		{name: "cut within a number", body: []byte{0x18, 0x80}, status: "0", want: "not an ExecSyncResponse"},
		{name: "less than it claims", body: field(1, "a"), claims: 100, status: "0", kind: container.ErrUnavailable},
		{name: "no status", body: field(1, "a"), want: "no status"},
		{name: "failed", status: "5", text: "no such container %22c%22", early: true, kind: container.ErrNotFound, want: `no such container "c"`},
		{name: "failed with a bad escape", status: "2", text: "50%", early: true, want: "50%"},
		{name: "took too long", status: "4", text: "killed", kind: container.ErrTimeout, early: true, want: "killed"},
		{name: "more than the runtime sends", status: "8", text: "trying to send message larger than max", early: true, want: "larger than max"},
		{name: "another server", notGRPC: true, kind: container.ErrUnavailable, want: "not a gRPC server"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDriver(t, cri.Config{RuntimeEndpoint: rawServer(t, func(w http.ResponseWriter, r *http.Request) {
				if tc.notGRPC {
					http.NotFound(w, r)
					return
				}
				h := w.Header()
				h.Set("Content-Type", "application/grpc")
				if tc.early { // what gRPC calls trailers only
					h.Set("Grpc-Status", tc.status)
					h.Set("Grpc-Message", tc.text)
					return
				}
				h.Set("Trailer", "Grpc-Status, Grpc-Message")
				message(w, max(tc.claims, len(tc.body)))
				_, _ = w.Write(tc.body)
				if tc.status != "" {
					h.Set("Grpc-Status", tc.status)
					h.Set("Grpc-Message", tc.text)
				}
			})})
			stdout, _, code, err := d.ExecSync(t.Context(), "c", []string{"x"}, 0)
			if tc.kind == nil && tc.want == "" {
				if err != nil || string(stdout) != tc.stdout || code != tc.code {
					t.Errorf("got %q, code %d, %v, want %q and %d", stdout, code, err, tc.stdout, tc.code)
				}
				return
			}
			if err == nil || tc.kind != nil && !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v and %q", err, tc.kind, tc.want)
			}
		})
	}
}

// TestExecEnds checks that a call ends with its context, with the driver, and when
// the runtime goes away, and that the next call reaches a runtime that is back.
func TestExecEnds(t *testing.T) {
	arrived := make(chan struct{}, 4)
	hung := rawServer(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	exec := func(ctx context.Context, d *cri.Driver) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, _, _, err := d.ExecSync(ctx, "c", []string{"x"}, 0)
			ended <- err
		}()
		return ended
	}
	d := newDriver(t, cri.Config{RuntimeEndpoint: hung})
	ctx, cancel := context.WithCancel(t.Context())
	ended := exec(ctx, d)
	<-arrived
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	d, err := cri.New(cri.Config{RuntimeEndpoint: hung, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended = exec(t.Context(), d)
	<-arrived
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("closed: %v", err)
	}

	d = newDriver(t, cri.Config{RuntimeEndpoint: filepath.Join(t.TempDir(), "none.sock")})
	if err := <-exec(t.Context(), d); !errors.Is(err, container.ErrUnavailable) || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("without a runtime: %v", err)
	}

	server := conformance.Serve(t, fake.New(fake.Config{}))
	d = newDriver(t, cri.Config{RuntimeEndpoint: server.Endpoint})
	for range 2 {
		if err := <-exec(t.Context(), d); !errors.Is(err, container.ErrNotFound) {
			t.Errorf("an unknown container: %v", err)
		}
		server.Stop(t)
		if err := <-exec(t.Context(), d); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("without a runtime: %v", err)
		}
		server.Start(t)
	}
}

// TestProbesOfAnOutputThatNeverEnds has probe commands that leave a child which
// keeps the output open: the runtime sends what there is and never ends its
// response. Each probe fails by its own timeout, and no call and no goroutine
// leaks.
func TestProbesOfAnOutputThatNeverEnds(t *testing.T) {
	const probes = 24
	var open atomic.Int32
	hung := rawServer(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		w.Header().Set("Content-Type", "application/grpc")
		message(w, 1<<20)
		_, _ = w.Write(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), 1<<19))
		_, _ = w.Write([]byte("the command's own output"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	d := newDriver(t, cri.Config{RuntimeEndpoint: hung, Timeout: 10 * time.Millisecond})
	runner := handler.New(d)
	round := func() {
		var all sync.WaitGroup
		for range probes {
			all.Go(func() {
				h := &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "sleep infinity &"}}}
				got, err := runner.Probe(t.Context(), h, handler.Target{ContainerID: "c", Container: &v1.Container{}}, 40*time.Millisecond)
				if err != nil || got.Status != handler.Failure || !strings.Contains(got.Output, "timed out after 40ms") {
					t.Errorf("%v %q, %v", got.Status, got.Output, err)
				}
			})
		}
		all.Wait()
		until(t, "the end of the calls", func() bool { return open.Load() == 0 })
	}
	round() // opens the connection
	before := runtime.NumGoroutine()
	round()
	until(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// until polls for what goroutines bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func FuzzExecAnswer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 5, 0x0a, 1, 'a', 0x18, 3})
	f.Add([]byte{1, 0, 0, 0, 1, 0})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0x0a, 0x80, 0x80, 0x80, 0x80, 0x08})
	f.Fuzz(func(t *testing.T, data []byte) {
		stdout, stderr, err := cri.ReadExecAnswer(data)
		if len(stdout) > container.MaxExecOutput || len(stderr) > container.MaxExecOutput {
			t.Errorf("%d and %d bytes are kept, %v", len(stdout), len(stderr), err)
		}
	})
}

// BenchmarkExecSync is what the command of a usual probe costs, beside the
// server in the same process.
func BenchmarkExecSync(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, execServer{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	d, err := cri.New(cri.Config{RuntimeEndpoint: socket, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.ReportAllocs()
	for b.Loop() {
		if stdout, _, _, err := d.ExecSync(b.Context(), "c", []string{"true"}, time.Second); err != nil || string(stdout) != "ok" {
			b.Fatal(err)
		}
	}
}

type execServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (execServer) ExecSync(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stdout: []byte("ok")}, nil
}
