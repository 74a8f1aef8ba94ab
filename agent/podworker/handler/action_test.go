package handler

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/container"
)

// TestPort checks how a port is resolved.
func TestPort(t *testing.T) {
	c := &v1.Container{Name: "web", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 8080}, {ContainerPort: 1}}}
	cases := []struct {
		name string
		port intstr.IntOrString
		want int // 0 is an error
	}{
		{"number", intstr.FromInt(80), 80},
		{"name", intstr.FromString("http"), 8080},
		{"number as a string", intstr.FromString("81"), 81},
		{"no such name", intstr.FromString("https"), 0},
		{"empty", intstr.FromString(""), 0},
		{"zero", intstr.FromInt(0), 0},
		{"negative", intstr.FromInt(-1), 0},
		{"too large", intstr.FromInt(65536), 0},
		{"too large as a string", intstr.FromString("65536"), 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := portOf(tc.port, c)
			if got != tc.want || (err == nil) != (tc.want != 0) {
				t.Errorf("port %v and %v, want %v", got, err, tc.want)
			}
			if err != nil && !errors.Is(err, errNoPort) {
				t.Errorf("error %v does not say what it is", err)
			}
		})
	}
}

// TestProbeExec checks what a command's end means.
func TestProbeExec(t *testing.T) {
	big := []byte(strings.Repeat("x", 9<<10))
	cases := []struct {
		name   string
		exec   stubExec
		status Status
		output string
		fails  bool
	}{
		{"exit 0", stubExec{stdout: []byte("o"), stderr: []byte("e")}, Success, "oe", false},
		{"exit 1", stubExec{stdout: []byte("o"), stderr: []byte("e"), code: 1}, Failure, "oe", false},
		{"much output", stubExec{stdout: big, stderr: big, code: 1}, Failure, strings.Repeat("x", maxOutput), false},
		{"timeout", stubExec{err: container.ErrTimeout}, Failure, `command timed out: "cat /x" timed out after 1s`, false},
		{"runtime away", stubExec{err: container.ErrUnavailable}, Unknown, "", true},
		{"container gone", stubExec{err: container.ErrNotFound}, Unknown, "", true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			h := &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/x"}}}
			got, err := New(&tc.exec).Probe(t.Context(), h, local(), time.Second)
			if got.Status != tc.status || got.Output != tc.output || (err != nil) != tc.fails {
				t.Errorf("got %v %.40q and %v, want %v %.40q", got.Status, got.Output, err, tc.status, tc.output)
			}
			if tc.fails && !errors.Is(err, tc.exec.err) {
				t.Errorf("error %v hides its cause", err)
			}
			if tc.exec.id != "c1" || tc.exec.timeout != time.Second {
				t.Errorf("run in %q for %v", tc.exec.id, tc.exec.timeout)
			}
		})
	}
	t.Run("runtime hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			h := &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}
			got, err := New(&stubExec{hang: true}).Probe(t.Context(), h, local(), time.Second)
			if err != nil || got.Status != Failure || time.Since(begun) != time.Second+execMargin {
				t.Errorf("after %v: %v and %v", time.Since(begun), got, err)
			}
		})
	})
}

// TestExpand checks the variables of a probe's command.
func TestExpand(t *testing.T) {
	env := []v1.EnvVar{
		{Name: "A", Value: "old"}, {Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"},
		{Name: "C", ValueFrom: &v1.EnvVarSource{}},
	}
	cases := []struct{ name, in, want string }{
		{"none", "echo", "echo"},
		{"one", "x$(A)y", "x1y"},
		{"not again", "$(B)", "$(A)"},
		{"unknown", "$(D)", "$(D)"},
		{"from a source", "[$(C)]", "[]"},
		{"escaped", "$$(A) $$$(A) $$", "$(A) $1 $"},
		{"not closed", "$(A $(B", "$(A $(B"},
		{"lone", "$ $x $", "$ $x $"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			cmd := []string{"first", tc.in, "$(A)"}
			got := expandCommand(cmd, env)
			if diff := cmp.Diff([]string{"first", tc.want, "1"}, got); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			if cmd[1] != tc.in {
				t.Error("the manifest's command was changed")
			}
		})
	}
}

// TestProbeTCP checks open, closed and unreachable ports.
func TestProbeTCP(t *testing.T) {
	tcp := func(port int) *v1.ProbeHandler {
		return &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}
	}
	t.Run("open", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		got, err := New(nil).Probe(t.Context(), tcp(l.Addr().(*net.TCPAddr).Port), local(), time.Minute)
		if err != nil || got.Status != Success {
			t.Errorf("got %v and %v", got, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		got, err := New(nil).Probe(t.Context(), tcp(closedPort(t)), local(), time.Minute)
		if err != nil || got.Status != Failure || !strings.HasSuffix(got.Output, "connect: connection refused") {
			t.Errorf("got %v and %v", got, err)
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			got, err := dialing(nil, unreachable).Probe(t.Context(), tcp(80), local(), 5*time.Second)
			if err != nil || got.Status != Failure || time.Since(begun) != 5*time.Second {
				t.Errorf("after %v: %v and %v", time.Since(begun), got, err)
			}
		})
	})
}

var errGone = errors.New("the container is gone")

// TestNoResult checks that an action that cannot be run returns an error, and the
// cause of ctx if ctx has ended.
func TestNoResult(t *testing.T) {
	one := int32(1)
	cases := []struct {
		name    string
		gone    bool // before it begins
		handler v1.ProbeHandler
		ip      string
		want    error
	}{
		{"no handler", false, v1.ProbeHandler{}, "10.0.0.7", errNoHandler},
		{"http without address", false, *get(80, "/"), "", errNoAddress},
		{"tcp without address", false, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(1)}}, "", errNoAddress},
		{"grpc without address", false, v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: one}}, "", errNoAddress},
		{"http without port", false, *get(0, "/"), "10.0.0.7", errNoPort},
		{"tcp without port", false, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}, "10.0.0.7", errNoPort},
		{"http cancelled", true, *get(80, "/"), "10.0.0.7", errGone},
		{"tcp cancelled", true, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(1)}}, "10.0.0.7", errGone},
		{"grpc cancelled", true, v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: one}}, "10.0.0.7", errGone},
		{"exec cancelled", true, v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, "10.0.0.7", errGone},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			r := dialing(&stubExec{hang: true}, unreachable)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tc.gone {
				cancel(errGone)
			}
			got, err := r.Probe(ctx, &tc.handler, Target{IP: tc.ip, Container: &v1.Container{}}, time.Minute)
			if !errors.Is(err, tc.want) || got.Status != Unknown {
				t.Errorf("got %v and %v, want %v", got, err, tc.want)
			}
		})
	}
}
