package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// listen is a port of the loopback interface, served until the test's end.
func listen(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(l) // ends with the listener
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func newServer(state string) *server {
	s := &server{name: "test", out: &bytes.Buffer{}, ended: make(chan int, 1)}
	s.health.Store(state)
	return s
}

func TestHTTP(t *testing.T) {
	s := newServer(good)
	addr := listen(t, s.http)
	for _, step := range []struct {
		path string
		want int
	}{
		{"/healthz", 200},
		{"/set?health=bad", 200},
		{"/healthz", 500},
		{"/redirect?to=/healthz", 500},
		{"/header?x-probe=yes", 400},
		{"/header?x-probe=&host=" + addr, 200},
		{"/report", 200},
		{"/nothing", 404},
		{"/exit?code=7", 200},
	} {
		resp, err := http.Get("http://" + addr + step.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != step.want {
			t.Errorf("%s: %d, want %d", step.path, resp.StatusCode, step.want)
		}
	}
	if code := <-s.ended; code != 7 {
		t.Errorf("exit code %d", code)
	}
	s.health.Store(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hung target answered %v, %v", resp, err)
	}
}

func TestHTTPS(t *testing.T) {
	addr := listen(t, newServer(good).https)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + addr + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || resp.TLS == nil {
		t.Errorf("%s, TLS %v", resp.Status, resp.TLS)
	}
}

func TestGRPCHealth(t *testing.T) {
	s := newServer(good)
	conn, err := grpc.NewClient(listen(t, s.http), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for state, want := range map[string]health.HealthCheckResponse_ServingStatus{
		good: health.HealthCheckResponse_SERVING, bad: health.HealthCheckResponse_NOT_SERVING,
	} {
		s.health.Store(state)
		got, err := health.NewHealthClient(conn).Check(t.Context(), &health.HealthCheckRequest{Service: "x"})
		if err != nil || got.GetStatus() != want {
			t.Errorf("%s: %v, %v, want %v", state, got, err, want)
		}
	}
}

func TestStat(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	if err := os.WriteFile(file, []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if d := cmp.Diff(fileState{Path: file, Type: "-", Mode: "0640", UID: uid, GID: gid, Size: 4, Content: "text"}, stat(file)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(fileState{Path: link, Type: "L", Mode: "0777", UID: uid, GID: gid, Size: 1, Link: "f", Content: "text"}, stat(link)); d != "" {
		t.Error(d)
	}
	if s := stat(filepath.Join(dir, "none")); s.Error == "" {
		t.Errorf("a file that is not there: %+v", s)
	}
}

func TestSwap(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := errors.Join(os.Mkdir(a, 0o755), os.Symlink("/", b)); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"swap", "-every", "1us", "-times", "3", a, b}); err != nil {
		t.Fatal(err)
	}
	if stat(a).Link != "/" || stat(b).Type != "d" {
		t.Errorf("after an odd number of exchanges: %+v, %+v", stat(a), stat(b))
	}
}

func TestExit(t *testing.T) {
	dir := t.TempDir()
	once := filepath.Join(dir, "once")
	message := filepath.Join(dir, "message")
	args := []string{"exit", "-once", once, "-say", "bye", "-message", message, "42"}
	var code exitError
	if err := run(t.Context(), args); !errors.As(err, &code) || code != 42 {
		t.Errorf("the first time: %v", err)
	}
	if err := run(t.Context(), args); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if b, err := os.ReadFile(message); err != nil || string(b) != "bye" {
		t.Errorf("message %q, %v", b, err)
	}
}

func TestTrapWritesItsLife(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	var code exitError
	if err := run(t.Context(), []string{"trap", "-out", out, "-name", "n", "-life", "1ms", "-code", "3"}); !errors.As(err, &code) || code != 3 {
		t.Errorf("end: %v", err)
	}
	b, err := os.ReadFile(out)
	if lines := bytes.Split(bytes.TrimSpace(b), []byte("\n")); err != nil || len(lines) != 2 || !bytes.HasSuffix(lines[0], []byte(" n start")) {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFillAndReport(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{"fill", filepath.Join(dir, "big"), "2"}); err != nil {
		t.Fatal(err)
	}
	if s := stat(filepath.Join(dir, "big")); s.Size != 2<<20 {
		t.Errorf("filled %d bytes", s.Size)
	}
	out := filepath.Join(dir, "report")
	if err := run(t.Context(), []string{"report", "-out", out, "-sysctl", "kernel.ostype"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil || !json.Valid(b) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestUnknownCommands(t *testing.T) {
	for _, args := range [][]string{nil, {"nope"}, {"file", "stat"}, {"swap", "a"}, {"exit", "x"}, {"alloc"}, {"serve", "-http", "no address"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q did nothing and complained of nothing", args)
		}
	}
}
