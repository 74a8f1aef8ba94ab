package podstatus

import "github.com/tinylet/tinylet/agent/pod"

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func named(namespace, name string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(namespace+"/"+name)
	return p
}

func TestStore(t *testing.T) {
	s := NewStore()
	woken := func() bool {
		select {
		case <-s.Changed():
			return true
		default:
			return false
		}
	}
	names := func() (out []string) {
		for _, e := range s.List() {
			out = append(out, e.Pod.Namespace+"/"+e.Pod.Name+" "+string(e.Status.Phase))
		}
		return out
	}
	b := named("x", "b")
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{name: "a first pod", do: func() { s.Set(b, v1.PodStatus{Phase: v1.PodPending}, pod.Sandbox{}) }, want: []string{"x/b Pending"}},
		{name: "the same again", do: func() { s.Set(b, v1.PodStatus{Phase: v1.PodPending}, pod.Sandbox{}) }, want: []string{"x/b Pending"}},
		{name: "another status", do: func() { s.Set(b, v1.PodStatus{Phase: v1.PodRunning}, pod.Sandbox{}) }, want: []string{"x/b Running"}},
		{name: "another namespace", do: func() { s.Set(named("w", "c"), v1.PodStatus{}, pod.Sandbox{}) }, want: []string{"w/c ", "x/b Running"}},
		{name: "a name before", do: func() { s.Set(named("x", "a"), v1.PodStatus{}, pod.Sandbox{}) }, want: []string{"w/c ", "x/a ", "x/b Running"}},
		{name: "one is forgotten", do: func() { s.Delete("w/c") }, want: []string{"x/a ", "x/b Running"}},
		{name: "and forgotten again", do: func() { s.Delete("w/c") }, want: []string{"x/a ", "x/b Running"}},
	} {
		step.do()
		if got, want := woken(), step.name != "the same again" && step.name != "and forgotten again"; got != want {
			t.Errorf("%s: woken %v, want %v", step.name, got, want)
		}
		if d := gocmp.Diff(step.want, names()); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
	if p, st, ok := s.Get("x/b"); !ok || p != b || st.Phase != v1.PodRunning {
		t.Errorf("got %v, %v, %v", p, st, ok)
	}
	if p, st, ok := s.Get("x/none"); ok || p != nil || st != nil {
		t.Errorf("got %v, %v, %v of an unknown pod", p, st, ok)
	}
}

func TestStoreKeepsNewestPod(t *testing.T) {
	s := NewStore()
	older, newer := named("x", "a"), named("x", "a")
	s.Set(older, v1.PodStatus{Phase: v1.PodRunning}, pod.Sandbox{})
	_, status, _ := s.Get("x/a")
	<-s.Changed()
	s.Set(newer, v1.PodStatus{Phase: v1.PodRunning}, pod.Sandbox{})
	p, same, _ := s.Get("x/a")
	if p != newer {
		t.Error("the older pod is kept")
	}
	if same != status || len(s.Changed()) > 0 {
		t.Error("an equal status counts as changed")
	}
}

// TestStoreSubmit distinguishes an observed status from that of a new pod.
func TestStoreSubmit(t *testing.T) {
	s := NewStore()
	check := func(what string, phase v1.PodPhase, observed, woken bool) {
		t.Helper()
		e := s.List()[0]
		got := false
		select {
		case <-s.Changed():
			got = true
		default:
		}
		if e.Status.Phase != phase || e.Observed != observed || got != woken {
			t.Errorf("%s: phase %s, observed %v, woken %v, want %s, %v, %v", what, e.Status.Phase, e.Observed, got, phase, observed, woken)
		}
	}
	p := named("x", "a")
	s.SetPod(p, v1.PodStatus{Phase: v1.PodPending})
	check("a new pod", v1.PodPending, false, true)
	s.SetPod(named("x", "a"), v1.PodStatus{Phase: v1.PodFailed})
	check("a new version", v1.PodPending, false, false)
	s.Set(p, v1.PodStatus{Phase: v1.PodPending}, pod.Sandbox{})
	check("observed to be so", v1.PodPending, true, true)
	s.SetPod(p, v1.PodStatus{Phase: v1.PodFailed})
	check("the next version", v1.PodPending, true, false)
}

func TestStoreConcurrently(t *testing.T) {
	s := NewStore()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			p := named("x", fmt.Sprint(n))
			for i := range 100 {
				s.Set(p, v1.PodStatus{Message: fmt.Sprint(i)}, pod.Sandbox{})
				s.Get(p.UID)
				s.List()
				s.Notify(make(chan struct{}, 1))()
			}
			if n%2 == 0 {
				s.Delete(p.UID)
			}
		})
	}
	wg.Wait()
	if n := len(s.List()); n != 2 {
		t.Errorf("%d pods are left, want 2", n)
	}
}

// TestStoreNotify checks that each change notifies every slot, except for those
// that were cancelled.
func TestStoreNotify(t *testing.T) {
	s := NewStore()
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	s.Set(named("x", "before"), v1.PodStatus{}, pod.Sandbox{})
	first, second := make(chan struct{}, 1), make(chan struct{}, 1)
	cancelFirst := s.Notify(first)
	defer s.Notify(second)()
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing happened since", func() {}, false},
		{"a status", func() { s.Set(named("x", "a"), v1.PodStatus{}, pod.Sandbox{}) }, true},
		{"the same status", func() { s.Set(named("x", "a"), v1.PodStatus{}, pod.Sandbox{}) }, false},
		{"several changes at once", func() {
			s.SetPod(named("x", "b"), v1.PodStatus{})
			s.Delete("x/a")
		}, true},
		{"no change", func() { s.Delete("x/a") }, false},
	} {
		step.do()
		for i, c := range []<-chan struct{}{first, second} {
			if got := woken(c); got != step.want {
				t.Errorf("%s: slot %d filled %v, want %v", step.name, i, got, step.want)
			}
		}
	}
	cancelFirst()
	cancelFirst()
	s.Delete("x/b")
	if woken(first) || !woken(second) {
		t.Error("the end of one does not leave the other alone")
	}
}

// TestStoreStarted checks that a container that was started is listed as running
// before any status has it, and that a reader that is notified of the start
// lists it.
func TestStoreStarted(t *testing.T) {
	s, p := NewStore(), named("a", "web")
	running := func() (out []pod.RunningContainer) {
		e, _ := s.Entry(p.UID)
		return slices.Collect(e.Running())
	}
	status := func(id string, restarts int32) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "ended", ContainerID: "c://e", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
			{Name: "runs", ContainerID: "c://" + id, RestartCount: restarts, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}
	}
	slot := make(chan struct{}, 1)
	defer s.Notify(slot)()
	s.RecordStart(p.UID, pod.RunningContainer{Name: "runs", ID: "0"}) // nobody knows the pod
	if len(slot) != 0 || running() != nil {
		t.Errorf("of an unknown pod: %v", running())
	}
	s.SetPod(p, v1.PodStatus{})
	<-slot
	<-s.Changed()
	steps := []struct {
		name string
		do   func()
		want []pod.RunningContainer
	}{
		{"started", func() { s.RecordStart(p.UID, pod.RunningContainer{Name: "runs", ID: "1", Restarts: 0}) }, []pod.RunningContainer{{Name: "runs", ID: "1", Restarts: 0}}},
		{"another one", func() { s.RecordStart(p.UID, pod.RunningContainer{Name: "more", ID: "m", Restarts: 0}) }, []pod.RunningContainer{{Name: "runs", ID: "1", Restarts: 0}, {Name: "more", ID: "m", Restarts: 0}}},
		{"observed", func() { s.Set(p, status("1", 0), pod.Sandbox{}) }, []pod.RunningContainer{{Name: "runs", ID: "1", Restarts: 0}}},
		{"started again", func() { s.RecordStart(p.UID, pod.RunningContainer{Name: "runs", ID: "2", Restarts: 1}) }, []pod.RunningContainer{{Name: "runs", ID: "2", Restarts: 1}}},
		{"a newer pod", func() {
			s.SetPod(p, v1.PodStatus{})
			s.RecordStart(p.UID, pod.RunningContainer{Name: "runs", ID: "3", Restarts: 2})
		}, []pod.RunningContainer{{Name: "runs", ID: "3", Restarts: 2}}},
		{"observed as before", func() { s.Set(p, status("1", 0), pod.Sandbox{}) }, []pod.RunningContainer{{Name: "runs", ID: "1", Restarts: 0}}},
		{"gone", func() { s.Delete(p.UID) }, nil},
	}
	for _, step := range steps {
		step.do()
		if got := running(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
		select {
		case <-slot:
		default:
			t.Errorf("%s: nobody was notified", step.name)
		}
	}
}
