package handler

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/container"
)

// TestHookExec checks that a hook's command runs as it is written, without a
// limit of its own.
func TestHookExec(t *testing.T) {
	cases := []struct {
		name string
		exec stubExec
		want string // the error
	}{
		{"exit 0", stubExec{}, ""},
		{"exit 3", stubExec{code: 3, stdout: []byte("a secret")}, "command exited with 3"},
		{"runtime away", stubExec{err: container.ErrUnavailable}, container.ErrUnavailable.Error()},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			h := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"echo", "$(A)"}}}
			target := local()
			target.Container.Env = []v1.EnvVar{{Name: "A", Value: "1"}}
			note, err := New(&tc.exec).Hook(t.Context(), h, target)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if note != "" || text != tc.want {
				t.Errorf("got %q and %v, want %q", note, err, tc.want)
			}
			if tc.exec.cmd[1] != "$(A)" || tc.exec.timeout != 0 || tc.exec.id != "c1" {
				t.Errorf("ran %q for %v in %q", tc.exec.cmd, tc.exec.timeout, tc.exec.id)
			}
		})
	}
}

// TestHookHTTP checks that an answer is enough, and the way back from HTTPS.
func TestHookHTTP(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r)
		w.WriteHeader(http.StatusInternalServerError)
	})
	host, plain := serve(t, handler, httptest.NewServer)
	_, secure := serve(t, handler, httptest.NewTLSServer)
	cases := []struct {
		name, scheme string
		port         int
		note         bool
		authorized   bool
		fails        bool
	}{
		{"http", "HTTP", plain, false, true, false},
		{"https", "HTTPS", secure, false, true, false},
		{"https to http", "HTTPS", plain, true, false, false},
		{"nobody listens", "HTTP", closedPort(t), false, false, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			seen.Store(nil)
			h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Port: intstr.FromInt(tc.port), Path: "/hook", Scheme: v1.URIScheme(tc.scheme),
				HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}},
			}}
			note, err := New(nil).Hook(t.Context(), h, Target{IP: host, Container: &v1.Container{}})
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if strings.HasPrefix(note, "request to HTTPS lifecycle hook 127.0.0.1:") != tc.note {
				t.Errorf("note %q", note)
			}
			r := seen.Load()
			if (r != nil) == tc.fails {
				t.Fatal("the server saw it the other way round")
			}
			if r != nil && (r.UserAgent() != "kube-lifecycle/1.36" || (r.Header.Get("Authorization") != "") != tc.authorized) {
				t.Errorf("the server saw %v", r.Header)
			}
		})
	}
}

// TestHookTime checks sleeps and hooks that are cut off.
func TestHookTime(t *testing.T) {
	nap := func(s int64) *v1.LifecycleHandler { return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: s}} }
	cases := []struct {
		name    string
		handler *v1.LifecycleHandler
		took    time.Duration
		want    error
	}{
		{"sleep", nap(4), 4 * time.Second, nil},
		{"no sleep", nap(0), 0, nil},
		{"negative sleep", nap(-5), 0, nil},
		{"too long a sleep", nap(1<<63 - 1), 10 * time.Second, errSleepInterrupted},
		{"hung command", &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, 10 * time.Second, context.DeadlineExceeded},
		{"hung server", &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(80)}}, 10 * time.Second, context.DeadlineExceeded},
		{"tcpSocket", &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}, 0, errNoHandler},
		{"nothing", &v1.LifecycleHandler{}, 0, errNoHandler},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun := time.Now()
				_, err := dialing(&stubExec{hang: true}, silent(t)).Hook(ctx, tc.handler, local())
				if !errors.Is(err, tc.want) || time.Since(begun) != tc.took {
					t.Errorf("after %v: %v, want %v after %v", time.Since(begun), err, tc.want, tc.took)
				}
			})
		})
	}
}
