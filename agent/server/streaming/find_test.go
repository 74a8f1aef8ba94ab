package streaming

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/podtest"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

type finder struct{ Finder }

func newFinder() *finder { return &finder{Finder{Statuses: podstatus.NewStore()}} }

// set stores a pod with a sandbox, or without if its ID is "".
func (f *finder) set(p *v1.Pod, s v1.PodStatus, sandbox string) {
	f.Statuses.Set(p, s, pod.Sandbox{ID: sandbox})
}

func TestFind(t *testing.T) {
	f := newFinder()
	born := time.Unix(1e9, 0)
	old, st := podtest.Mixed("web", "2", born)
	old.DeletionTimestamp = &metav1.Time{Time: born.Add(2 * time.Hour)}
	f.set(old, st, "sandbox-2")
	next, st := podtest.Mixed("web", "1", born.Add(time.Hour))
	f.set(next, st, "sandbox-1")
	// It was made later, but is on its way out already.
	last, st := podtest.Mixed("web", "3", born.Add(3*time.Hour))
	last.DeletionTimestamp = &metav1.Time{Time: born.Add(4 * time.Hour)}
	f.set(last, st, "sandbox-3")
	bare, st := podtest.Mixed("bare", "4", born)
	st.Phase = v1.PodPending
	f.set(bare, st, "")

	for _, tt := range []struct {
		name Name
		want Found
		err  error
		says string
	}{
		{Name{Namespace: "a", Pod: "web"}, Found{SandboxID: "sandbox-1"}, nil, ""},
		{Name{Namespace: "a", Pod: "web", Container: "app"}, Found{SandboxID: "sandbox-1", ContainerID: "app-1"}, nil, ""},
		{Name{Namespace: "a", Pod: "web", UID: "2", Container: "app"}, Found{SandboxID: "sandbox-2", ContainerID: "app-2"}, nil, ""},
		{Name{Namespace: "a", Pod: "bare", Container: "app"}, Found{ContainerID: "app-4"}, nil, ""},
		{Name{Namespace: "a", Pod: "web", UID: "9"}, Found{}, ErrNotFound, "UID 9"},
		{Name{Namespace: "a", Pod: "we"}, Found{}, ErrNotFound, "a/we"},
		{Name{Namespace: "b", Pod: "web"}, Found{}, ErrNotFound, "b/web"},
		{Name{Namespace: "b", Pod: "web", UID: "1"}, Found{}, ErrNotFound, "UID 1"},
		{Name{Namespace: "a", Pod: "bare"}, Found{}, ErrNotRunning, "no sandbox (it is Pending)"},
		{Name{Namespace: "a", Pod: "web", Container: "other"}, Found{SandboxID: "sandbox-1"}, ErrNotFound, `"other"`},
		{Name{Namespace: "a", Pod: "web", Container: "done"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "terminated (Error, exit code 3)"},
		{Name{Namespace: "a", Pod: "web", Container: "pulls"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "waiting (ImagePullBackOff)"},
		{Name{Namespace: "a", Pod: "web", Container: "waits"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "is waiting"},
		{Name{Namespace: "a", Pod: "web", Container: "new"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "not created yet"},
		{Name{Namespace: "a", Pod: "web", Container: "odd"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "without an ID"},
		{Name{Namespace: "a", Pod: "web", Container: "silent"}, Found{SandboxID: "sandbox-1"}, ErrNotRunning, "terminated (exit code 4)"},
	} {
		got, err := f.Find(t.Context(), tt.name)
		if got != tt.want || !errors.Is(err, tt.err) || (err != nil && !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: %+v, %v; want %+v, %v with %q", tt.name, got, err, tt.want, tt.err, tt.says)
		}
	}
}

// TestSessionWaitsForTheFirstObservation has sessions ask for a pod that was
// restored and is not observed yet.
func TestSessionWaitsForTheFirstObservation(t *testing.T) {
	p, observed := podtest.Mixed("web", "1", time.Unix(1e9, 0))
	app := Name{Namespace: "a", Pod: "web", Container: "app"}
	for name, tt := range map[string]struct {
		name     Name
		first    v1.PodStatus
		observed time.Duration
		want     Found
		err      error
		after    time.Duration
	}{
		"container runs":      {app, v1.PodStatus{}, time.Second, Found{SandboxID: "s", ContainerID: "app-1"}, nil, time.Second},
		"sandbox is ready":    {Name{Namespace: "a", Pod: "web"}, v1.PodStatus{}, time.Second, Found{SandboxID: "s"}, nil, time.Second},
		"container has ended": {Name{Namespace: "a", Pod: "web", Container: "done"}, v1.PodStatus{}, time.Second, Found{SandboxID: "s"}, ErrNotRunning, time.Second},
		"no such container":   {Name{Namespace: "a", Pod: "web", Container: "other"}, v1.PodStatus{}, time.Second, Found{}, ErrNotFound, 0},
		"API status is known": {app, observed, time.Second, Found{ContainerID: "app-1"}, nil, 0},
		"runtime is silent":   {app, v1.PodStatus{}, time.Hour, Found{}, ErrNotRunning, podstatus.ObserveTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFinder()
				f.Statuses.SetPod(p, tt.first)
				time.AfterFunc(tt.observed, func() { f.set(p, observed, "s") })
				begun := time.Now()
				got, err := f.Find(t.Context(), tt.name)
				if got != tt.want || !errors.Is(err, tt.err) || time.Since(begun) != tt.after {
					t.Errorf("%+v, %v after %v; want %+v, %v after %v", got, err, time.Since(begun), tt.want, tt.err, tt.after)
				}
			})
		})
	}
}
