package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/server"
	"github.com/tinylet/tinylet/agent/server/streaming"
	"github.com/tinylet/tinylet/cgroups"
)

// newView is a view of pods that nobody runs, on a node whose runtime has told
// its driver.
func newView(t *testing.T, tree *cgroups.Tree) *view {
	t.Helper()
	l := newLab(t, t.TempDir())
	facts, err := newNodeFacts(l.cfg, l.runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	facts.told.Store(&runtimeFacts{cgroupDriver: criconfig.DriverCgroupfs})
	return &view{statuses: podstatus.NewStore(), node: facts, tree: tree}
}

// knownPod is a pod a/NAME with the containers app, which runs, done, which
// has ended, and new, of which nothing is known.
func knownPod(name string, uid types.UID, made time.Time) (*v1.Pod, v1.PodStatus) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(made)},
		Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "app", Image: "app:1"}, {Name: "done"}, {Name: "pulls"}, {Name: "waits"}, {Name: "new"}, {Name: "odd"}, {Name: "silent"},
		}},
	}
	return p, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{Name: "app", ContainerID: "fake://app-" + string(uid), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "done", ContainerID: "fake://done", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}}},
		{Name: "pulls", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
		{Name: "waits", State: v1.ContainerState{}},
		{Name: "silent", ContainerID: "fake://silent", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 4}}},
		{Name: "odd", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
}

// set tells the view of a pod with a sandbox, or without if its ID is "".
func (v *view) set(p *v1.Pod, s v1.PodStatus, sandbox string) {
	v.statuses.Set(p, s, pod.Sandbox{ID: sandbox})
}

func TestFindsWhatASessionNames(t *testing.T) {
	v := newView(t, nil)
	born := time.Unix(1e9, 0)
	old, st := knownPod("web", "2", born)
	old.DeletionTimestamp = &metav1.Time{Time: born.Add(2 * time.Hour)}
	v.set(old, st, "sandbox-2")
	next, st := knownPod("web", "1", born.Add(time.Hour))
	v.set(next, st, "sandbox-1")
	// It was made later, but is on its way out already.
	last, st := knownPod("web", "3", born.Add(3*time.Hour))
	last.DeletionTimestamp = &metav1.Time{Time: born.Add(4 * time.Hour)}
	v.set(last, st, "sandbox-3")
	bare, st := knownPod("bare", "4", born)
	st.Phase = v1.PodPending
	v.set(bare, st, "")

	for _, tt := range []struct {
		name streaming.Name
		want streaming.Found
		err  error
		says string
	}{
		{streaming.Name{Namespace: "a", Pod: "web"}, streaming.Found{SandboxID: "sandbox-1"}, nil, ""},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "app"}, streaming.Found{SandboxID: "sandbox-1", ContainerID: "app-1"}, nil, ""},
		{streaming.Name{Namespace: "a", Pod: "web", UID: "2", Container: "app"}, streaming.Found{SandboxID: "sandbox-2", ContainerID: "app-2"}, nil, ""},
		{streaming.Name{Namespace: "a", Pod: "bare", Container: "app"}, streaming.Found{ContainerID: "app-4"}, nil, ""},
		{streaming.Name{Namespace: "a", Pod: "web", UID: "9"}, streaming.Found{}, streaming.ErrNotFound, "UID 9"},
		{streaming.Name{Namespace: "a", Pod: "we"}, streaming.Found{}, streaming.ErrNotFound, "a/we"},
		{streaming.Name{Namespace: "b", Pod: "web"}, streaming.Found{}, streaming.ErrNotFound, "b/web"},
		{streaming.Name{Namespace: "b", Pod: "web", UID: "1"}, streaming.Found{}, streaming.ErrNotFound, "UID 1"},
		{streaming.Name{Namespace: "a", Pod: "bare"}, streaming.Found{}, streaming.ErrNotRunning, "no sandbox (it is Pending)"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "other"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotFound, `"other"`},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "done"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "terminated (Error, exit code 3)"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "pulls"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "waiting (ImagePullBackOff)"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "waits"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "is waiting"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "new"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "not made yet"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "odd"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "without an ID"},
		{streaming.Name{Namespace: "a", Pod: "web", Container: "silent"}, streaming.Found{SandboxID: "sandbox-1"}, streaming.ErrNotRunning, "terminated (exit code 4)"},
	} {
		got, err := v.found(t.Context(), tt.name)
		if got != tt.want || !errors.Is(err, tt.err) || (err != nil && !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: %+v, %v; want %+v, %v with %q", tt.name, got, err, tt.want, tt.err, tt.says)
		}
	}
}

// TestSessionWaitsForTheFirstObservation has sessions ask for a pod that was
// restored and is not observed yet.
func TestSessionWaitsForTheFirstObservation(t *testing.T) {
	p, observed := knownPod("web", "1", time.Unix(1e9, 0))
	app := streaming.Name{Namespace: "a", Pod: "web", Container: "app"}
	for name, tt := range map[string]struct {
		name     streaming.Name
		first    v1.PodStatus
		observed time.Duration
		want     streaming.Found
		err      error
		after    time.Duration
	}{
		"container runs":      {app, v1.PodStatus{}, time.Second, streaming.Found{SandboxID: "s", ContainerID: "app-1"}, nil, time.Second},
		"sandbox is ready":    {streaming.Name{Namespace: "a", Pod: "web"}, v1.PodStatus{}, time.Second, streaming.Found{SandboxID: "s"}, nil, time.Second},
		"container has ended": {streaming.Name{Namespace: "a", Pod: "web", Container: "done"}, v1.PodStatus{}, time.Second, streaming.Found{SandboxID: "s"}, streaming.ErrNotRunning, time.Second},
		"no such container":   {streaming.Name{Namespace: "a", Pod: "web", Container: "other"}, v1.PodStatus{}, time.Second, streaming.Found{}, streaming.ErrNotFound, 0},
		"API status is known": {app, observed, time.Second, streaming.Found{ContainerID: "app-1"}, nil, 0},
		"runtime is silent":   {app, v1.PodStatus{}, time.Hour, streaming.Found{}, streaming.ErrNotRunning, observeLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &view{statuses: podstatus.NewStore()}
				v.statuses.SetPod(p, tt.first)
				time.AfterFunc(tt.observed, func() { v.set(p, observed, "s") })
				begun := time.Now()
				got, err := v.found(t.Context(), tt.name)
				if got != tt.want || !errors.Is(err, tt.err) || time.Since(begun) != tt.after {
					t.Errorf("%+v, %v after %v; want %+v, %v after %v", got, err, time.Since(begun), tt.want, tt.err, tt.after)
				}
			})
		})
	}
}

// container is the status of a pod's container on the lab, and its ID.
func (l *lab) container(p *v1.Pod, name string) (c *v1.ContainerStatus, id string) {
	l.t.Helper()
	st := l.status(p.UID)
	for i := range st.ContainerStatuses {
		if c := &st.ContainerStatuses[i]; c.Name == name && idOf(c) != "" {
			return c, idOf(c)
		}
	}
	l.t.Fatalf("container %s is not known: %+v", name, st)
	return nil, ""
}

// logs are those of the running agent's containers.
func (l *lab) logs() *logs {
	l.t.Helper()
	facts, err := newNodeFacts(l.cfg, l.runtime, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return &logs{runtime: l.runtime, view: &view{statuses: l.agent.statuses, workers: l.agent.workers, node: facts}}
}

func TestWhereALogIs(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "web", "Always", "sleep infinity")
		l.want(p)
		l.start()
		l.settle(5 * time.Second)
		c, id := l.container(p, "c0")
		at := l.logs()
		q := server.LogQuery{Pod: p, Container: "c0", ID: id}

		file, err := at.containerLog(t.Context(), q)
		if err != nil || !strings.HasPrefix(file.Path, l.cfg.Paths.PodLogs) || file.Ended != nil {
			t.Fatalf("the runtime tells %+v, %v", file, err)
		}
		unknown := q
		unknown.ID = "other"
		if file, err := at.containerLog(t.Context(), unknown); !errors.Is(err, container.ErrNotFound) || file.Path != "" {
			t.Errorf("of a container that nobody knows: %+v, %v", file, err)
		}

		l.runtime.Stop()
		told := file.Path
		if file, err := at.containerLog(t.Context(), q); !errors.Is(err, container.ErrUnavailable) || file.Path != "" {
			t.Errorf("no runtime has told anything yet: %+v, %v", file, err)
		}
		at.view.node.told.Store(&runtimeFacts{cgroupDriver: criconfig.DriverCgroupfs})
		if file, err := at.containerLog(t.Context(), q); err != nil || file.Path != told {
			t.Errorf("while the runtime is away: %+v, %v; it told %s", file, err, told)
		}
		// Where the log of an attempt before is, only the runtime knows.
		unknown.ID = "earlier-" + idOf(c)
		if file, err := at.containerLog(t.Context(), unknown); err == nil {
			t.Errorf("another attempt's log is at %+v", file)
		}
		unknown = q
		unknown.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}
		if file, err := at.containerLog(t.Context(), unknown); err == nil {
			t.Errorf("the log of a pod that nobody knows is at %+v", file)
		}
		l.runtime.Start()
	})
}

// A container whose runtime writes no log, as the API allows.
func TestNoLog(t *testing.T) {
	v := newView(t, nil)
	l := newLab(t, t.TempDir())
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "1", Name: "web", Namespace: "a"}}
	box, err := l.runtime.RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := l.runtime.CreateContainer(t.Context(), box, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: busybox}, Command: []string{"sh"},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := knownPod("web", "1", time.Unix(1e9, 0))
	file, err := (&logs{runtime: l.runtime, view: v}).containerLog(t.Context(), server.LogQuery{Pod: p, Container: "app", ID: id, Follow: true})
	if !errors.Is(err, errNoLog) || file.Path != "" || file.Ended != nil {
		t.Errorf("%+v, %v", file, err)
	}
}

func TestFollowingEndsWithTheContainer(t *testing.T) {
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	bubble(t, func(t *testing.T, l *lab) {
		p, other := shell(t, "web", "Never", "sleep infinity"), shell(t, "other", "Always", "exit 1")
		l.want(p, other)
		l.start()
		l.settle(5 * time.Second)
		_, id := l.container(p, "c0")
		at := l.logs()
		q := server.LogQuery{Pod: p, Container: "c0", ID: id, Follow: true}
		file, err := at.containerLog(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		left, cancel := context.WithCancel(t.Context())
		abandoned, err := at.containerLog(left, q)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		l.settle(time.Minute) // another pod's changes wake it meanwhile
		if isClosed(file.Ended) || isClosed(abandoned.Ended) {
			t.Fatal("the container is said to have ended")
		}
		// An attempt before this one has ended.
		q.ID = "earlier"
		q.Follow = true
		ended := make(chan struct{})
		at.view.tellEnd(t.Context(), q, ended)
		if !isClosed(ended) {
			t.Error("a container that has ended is followed")
		}
		if !l.runtime.ExitContainer(id, 0) {
			t.Fatal("the container does not run")
		}
		l.settle(5 * time.Second)
		if !isClosed(file.Ended) {
			t.Error("nobody was told that the container has ended")
		}
		if isClosed(abandoned.Ended) {
			t.Error("who has left was waited for")
		}
	})
}

// A pod that is gone altogether does not run.
func TestFollowingEndsWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{statuses: podstatus.NewStore()}
		p, st := knownPod("web", "1", time.Unix(1e9, 0))
		v.set(p, st, "sandbox")
		ended := make(chan struct{})
		go v.tellEnd(t.Context(), server.LogQuery{Pod: p, Container: "app", ID: "app-1"}, ended)
		synctest.Wait()
		v.statuses.Delete(p.UID)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("nobody was told")
		}
	})
}
