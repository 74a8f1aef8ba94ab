package oom

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// want compares the recorded events.
func want(t *testing.T, n *node, events ...string) {
	t.Helper()
	if diff := cmp.Diff(events, n.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func same(t *testing.T, got []string, reasons ...string) {
	t.Helper()
	if diff := cmp.Diff(reasons, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestAContainerOverItsLimit(t *testing.T) {
	for _, driver := range []string{criconfig.DriverCgroupfs, criconfig.DriverSystemd} {
		t.Run(driver, func(t *testing.T) {
			n := newNode(t)
			n.driver = driver
			n.group("/kubepods.slice", counts{})
			p := n.add("web", "64Mi")
			n.start()
			c := counts{oom: 1, kills: 2, groups: 1}
			at, _ := n.peek()
			n.group(kubepods(at), c)
			n.group(n.path(p, ""), c)
			n.group(n.path(p, "a-0"), c)
			n.vmstat(2)
			n.w.Check()
			want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: all processes of container a were killed")
			if len(n.woken) != 1 {
				t.Errorf("woken: %v", n.woken)
			}
			n.gone(n.path(p, "a-0"))
			same(t, n.reasons(p, seen(ended("a-0", "a", 137, "Error"))), "OOMKilled")
			same(t, n.reasons(p, seen(ended("a-0", "a", 255, "Unknown"))), "OOMKilled")
			n.w.Check()
			want(t, n) // once
		})
	}
}

func TestTheGroupIsGoneBeforeTheLook(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi", "")
	n.group(n.path(p, ""), counts{})
	n.start()
	// One was killed for its liveness probe before, and judged then.
	old := ended("b-0", "b", 137, "Error")
	old.FinishedAt = time.Unix(500, 0)
	same(t, n.reasons(p, seen(old)), "Error")

	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	n.vmstat(1)
	n.w.Check()
	want(t, n) // it is not known yet whose
	fresh := ended("a-0", "a", 137, "Error")
	fresh.FinishedAt = time.Unix(400, 0) // the clock was set back meanwhile
	same(t, n.reasons(p, seen(fresh, old)), "OOMKilled", "Error")
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
	same(t, n.reasons(p, seen(fresh, old)), "OOMKilled", "Error")
	want(t, n)
}

// The kernel may count the chosen process twice: also with its cgroup.
func TestAWholeGroupIsGoneBeforeTheLook(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.group(n.path(p, ""), counts{})
	n.start()
	for run := range uint64(2) {
		c := counts{oom: run + 1, kills: 4 * (run + 1), groups: run + 1}
		n.group("/kubepods", c)
		n.group(n.path(p, ""), c)
		n.w.Check()
		want(t, n)
		same(t, n.reasons(p, seen(ended(fmt.Sprint("a-", run), "a", 137, "Error"))), "OOMKilled")
		want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: all processes of container a were killed")
	}
	c := counts{oom: 3, kills: 9, groups: 2}
	n.group("/kubepods", c)
	n.group(n.path(p, ""), c)
	same(t, n.reasons(p, seen(ended("a-2", "a", 137, "Error"))), "OOMKilled")
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
}

func TestWhatTheRuntimeKnowsIsNotLooseForAnother(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi", "64Mi")
	n.group(n.path(p, ""), counts{})
	n.start()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	a, b := ended("a-0", "a", 137, "OOMKilled"), ended("b-0", "b", 137, "Error")
	b.FinishedAt = time.Unix(900, 0)
	same(t, n.reasons(p, seen(b, a)), "Error", "OOMKilled")
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
}

func TestAProcessOfAContainerThatGoesOn(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.start()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	n.group(n.path(p, "a-0"), counts{oom: 1, kills: 1})
	n.w.Check()
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
	runs := container.Container{ID: "a-0", Name: "a", State: container.StateRunning}
	same(t, n.reasons(p, seen(runs)), "")
	same(t, n.reasons(p, seen(ended("a-0", "a", 3, "Error"))), "Error")
	same(t, n.reasons(p, seen(ended("a-0", "a", 0, "Completed"))), "Completed")
}

func TestAContainerWhoseNameIsNotKnownYet(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.pods[0].Status.ContainerStatuses = nil
	n.start()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	n.group(n.path(p, "a-7"), counts{oom: 1, kills: 1})
	n.w.Check()
	want(t, n)
	same(t, n.reasons(p, seen(ended("a-7", "a", 137, "Error"))), "OOMKilled")
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
}

// The kernel kills the processes of a cgroup one by one, and a check may happen in
// between.
func TestAGroupThatIsHalfKilled(t *testing.T) {
	for _, r := range []struct {
		name     string
		oom      uint64
		gone     bool // with the second look
		messages [2][]string
	}{
		{name: "over its limit", oom: 1, messages: [2][]string{
			{"web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed"},
			{"web OOMKilled: Container a reached its memory limit of 64Mi: all processes of container a were killed"},
		}},
		{name: "and gone", oom: 1, gone: true, messages: [2][]string{
			{"web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed"},
		}},
		{name: "the system", messages: [2][]string{
			{"web OOMKilled: The node ran out of memory: a process of container a was killed", " SystemOOM: System OOM encountered, victim: container a of pod default/web"},
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			n := newNode(t)
			p := n.add("web", "64Mi", "64Mi")
			n.start()
			n.group("/kubepods", counts{r.oom, 1, 0})
			n.group(n.path(p, ""), counts{r.oom, 1, 0})
			n.group(n.path(p, "a-0"), counts{r.oom, 1, 0})
			n.vmstat(1)
			n.w.Check()
			want(t, n, r.messages[0]...)
			n.group("/kubepods", counts{r.oom, 3, 1})
			n.group(n.path(p, ""), counts{r.oom, 3, 1})
			n.group(n.path(p, "a-0"), counts{r.oom, 3, 1})
			if r.gone {
				n.gone(n.path(p, "a-0"))
			}
			n.vmstat(3)
			n.w.Check()
			want(t, n, r.messages[1]...)
			a := ended("a-0", "a", 137, "Error")
			same(t, n.reasons(p, seen(a)), "OOMKilled")
			want(t, n)
			// Nothing is left for one that is killed for its probe.
			same(t, n.reasons(p, seen(ended("b-0", "b", 137, "Error"), a)), "Error", "OOMKilled")
			want(t, n)
		})
	}
}

func TestThePodsLimit(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi", "32Mi")
	n.start()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	n.group(n.path(p, "b-0"), counts{kills: 1})
	n.w.Check()
	want(t, n, "web OOMKilled: The pod web reached its memory limit of 96Mi: a process of container b was killed")
	same(t, n.reasons(p, seen(ended("b-0", "b", 137, "Error"))), "OOMKilled")
}

func TestAllPodsTogether(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.start()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.met("/kubepods", 1)
	n.group(n.path(p, ""), counts{kills: 1})
	n.group(n.path(p, "a-0"), counts{kills: 1})
	n.vmstat(1)
	n.w.Check()
	want(t, n, "web OOMKilled: All pods together reached the node's memory limit for pods: a process of container a was killed")
}

// The kernel counts a limit hit, prints to the console, and then kills: a check may
// happen in between. It also counts limit hits without a kill.
func TestALimitAndItsKillAreCountedApart(t *testing.T) {
	limit, pods := "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed",
		"web OOMKilled: All pods together reached the node's memory limit for pods: a process of container a was killed"
	system := []string{
		"web OOMKilled: The node ran out of memory: a process of container a was killed",
		" SystemOOM: System OOM encountered, victim: container a of pod default/web",
	}
	type step struct {
		top, pod, a counts
		own         uint64 // of all pods
		after       time.Duration
		want        []string
	}
	for name, steps := range map[string][]step{
		"the container's, then the kill": {
			{top: counts{oom: 1}, pod: counts{oom: 1}, a: counts{oom: 1}},
			{top: counts{1, 1, 0}, pod: counts{1, 1, 0}, a: counts{1, 1, 0}, after: 3 * time.Second, want: []string{limit}},
		},
		"that of all pods, then the kill": {
			{top: counts{oom: 1}, own: 1},
			{top: counts{1, 1, 0}, own: 1, pod: counts{0, 1, 0}, a: counts{0, 1, 0}, after: 3 * time.Second, want: []string{pods}},
		},
		"that of all pods without a kill, and much later the system": {
			{top: counts{oom: 1}, own: 1},
			{top: counts{1, 1, 0}, own: 1, pod: counts{0, 1, 0}, a: counts{0, 1, 0}, after: time.Hour, want: system},
		},
		"the container's once more than it kills, and much later the system": {
			{top: counts{1, 1, 0}, pod: counts{1, 1, 0}, a: counts{1, 1, 0}, want: []string{limit}},
			{top: counts{3, 1, 0}, pod: counts{3, 1, 0}, a: counts{3, 1, 0}, after: time.Second},
			{top: counts{3, 2, 0}, pod: counts{3, 2, 0}, a: counts{3, 2, 0}, after: time.Hour, want: system},
		},
		"the container's once more than it kills, and then that of all pods": {
			{top: counts{1, 1, 0}, pod: counts{1, 1, 0}, a: counts{1, 1, 0}, want: []string{limit}},
			{top: counts{3, 1, 0}, pod: counts{3, 1, 0}, a: counts{3, 1, 0}, after: time.Second},
			{top: counts{4, 2, 0}, own: 1, pod: counts{3, 2, 0}, a: counts{3, 2, 0}, after: time.Hour, want: []string{pods}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.add("web", "64Mi")
				n.start()
				for _, s := range steps {
					time.Sleep(s.after)
					n.group("/kubepods", s.top)
					n.met("/kubepods", s.own)
					n.group(n.path(p, ""), s.pod)
					n.group(n.path(p, "a-0"), s.a)
					n.vmstat(s.top.kills)
					n.w.onEvents(cgroups.MemoryEvents{OOM: cgroups.Number{Value: s.top.oom}, OOMKill: cgroups.Number{Value: s.top.kills}}, nil)
					want(t, n, s.want...)
					n.w.Check()
					want(t, n)
				}
			})
		})
	}
}

func TestTheSystemRunsOut(t *testing.T) {
	n := newNode(t)
	p, other := n.add("web", ""), n.add("other", "64Mi")
	n.group("/system", counts{oom: 4, kills: 4})
	n.vmstat(4)
	n.start()

	// In a pod, while another one runs into its own limit.
	n.group("/kubepods", counts{oom: 1, kills: 2})
	n.group(n.path(p, ""), counts{kills: 1})
	n.group(n.path(p, "a-0"), counts{kills: 1})
	n.group(n.path(other, ""), counts{oom: 1, kills: 1})
	n.group(n.path(other, "a-0"), counts{oom: 1, kills: 1})
	n.vmstat(6)
	n.w.Check()
	want(t, n,
		"web OOMKilled: The node ran out of memory: a process of container a was killed",
		"other OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed",
		" SystemOOM: System OOM encountered, victim: container a of pod default/web")

	// A service over its own limit is not the system.
	n.group("/system", counts{oom: 5, kills: 5})
	n.vmstat(7)
	n.w.Check()
	want(t, n)
	n.vmstat(8)
	n.w.Check()
	want(t, n, " SystemOOM: System OOM encountered, victim: a process outside of all pods")
	n.w.Check()
	want(t, n)
}

// In a container, whose cgroup is the root, kills elsewhere on the host are not the
// node's.
func TestTheHostOfAContainerRunsOut(t *testing.T) {
	n := newNode(t)
	n.group("/", counts{oom: 1, kills: 1})
	n.vmstat(40)
	n.start()
	n.vmstat(44)
	n.w.Check()
	want(t, n)
	n.group("/", counts{oom: 2, kills: 2})
	n.w.Check()
	want(t, n, " SystemOOM: System OOM encountered, victim: a process outside of all pods")
}

// A service that hits its limit and is restarted, by an init that gives it a new
// cgroup, is no system OOM.
func TestAServiceThatRunsIntoItsLimitAgain(t *testing.T) {
	n := newNode(t)
	n.group("/service", counts{oom: 2, kills: 2})
	n.vmstat(2)
	n.start()
	for i := range uint64(3) {
		n.group("/next", counts{oom: 1, kills: 1}) // while the last is there, so that its number is another
		n.gone("/service")
		if err := os.Rename(filepath.Join(n.root, "next"), filepath.Join(n.root, "service")); err != nil {
			t.Fatal(err)
		}
		n.vmstat(3 + i)
		n.w.Check()
		want(t, n)
	}
	n.vmstat(6)
	n.w.Check()
	want(t, n, " SystemOOM: System OOM encountered, victim: a process outside of all pods")
}

// The kernel counts a limit hit also without a kill. Such a hit is not taken for the
// cause of a later kill.
func TestALimitHitWithoutAKillIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.group("/system", counts{})
		n.start()
		n.group("/system", counts{oom: 1})
		n.w.Check()
		time.Sleep(time.Minute)
		n.vmstat(1)
		n.w.Check()
		want(t, n, " SystemOOM: System OOM encountered, victim: a process outside of all pods")
		// The hit may be read before its kill.
		n.group("/system", counts{oom: 2})
		n.w.Check()
		time.Sleep(time.Second)
		n.vmstat(2)
		n.w.Check()
		want(t, n)
	})
}

// While the cgroups cannot be listed, the limit hits that were read last stay: they are
// no new ones afterwards.
func TestCgroupsThatCannotBeListed(t *testing.T) {
	n := newNode(t)
	n.group("/system", counts{oom: 4})
	n.start()
	n.w.cfg.VMStat = filepath.Join(t.TempDir(), "vmstat")
	kills := func(kills string) {
		if err := os.WriteFile(n.w.cfg.VMStat, []byte("oom_kill "+kills+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kills("0")
	if err := os.Rename(n.root, n.root+".gone"); err != nil {
		t.Fatal(err)
	}
	n.w.Check()
	if err := os.Rename(n.root+".gone", n.root); err != nil {
		t.Fatal(err)
	}
	kills("1")
	n.w.Check()
	want(t, n, " SystemOOM: System OOM encountered, victim: a process outside of all pods")
}

// A kill in a pod while the first counters are read is no kill outside of pods.
func TestAKillWhileTheBaselineIsRead(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.group(n.path(p, ""), counts{})
	pipe := filepath.Join(n.root, "vmstat")
	if err := errors.Join(os.Remove(pipe), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // when the Watcher opens it
		if err == nil {
			n.group("/kubepods", counts{oom: 1, kills: 1})
			n.group(n.path(p, ""), counts{oom: 1, kills: 1})
			_, err = f.WriteString("oom_kill 5\n") // read before the kill
			err = errors.Join(err, f.Close())
		}
		written <- err
	}()
	n.start()
	if err := errors.Join(<-written, os.Remove(pipe)); err != nil {
		t.Fatal(err)
	}
	n.vmstat(6)
	n.w.Check()
	n.w.Check()
	for _, e := range n.told() {
		if strings.Contains(e, reasonSystem) {
			t.Error(e)
		}
	}
}

// A limit beyond int64 is a limit.
func TestALimitBeyondAllBytes(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "18446744073709551616")
	if got := memoryLimit(p, "a"); got != math.MaxInt64 {
		t.Errorf("the limit is %d", got)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: p.Spec.Containers[0].Resources.Limits}
	if got, want := message(p, "a", kill{cause: ofPod, n: 1}), ofLimit(math.MaxInt64); !strings.Contains(got, want) {
		t.Errorf("message %q, want %q in it", got, want)
	}
}

func TestWhatWasCountedBeforeTheAgentCame(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi", "64Mi")
	n.group("/kubepods", counts{oom: 3, kills: 3})
	n.group(n.path(p, ""), counts{oom: 3, kills: 3})
	n.group(n.path(p, "a-0"), counts{oom: 1, kills: 1})
	n.vmstat(5)
	n.start()
	same(t, n.reasons(p, seen(ended("b-0", "b", 137, "Error"))), "Error")
	want(t, n)
	// One of its processes was killed once, and now all are.
	same(t, n.reasons(p, seen(ended("a-0", "a", 137, "Error"))), "OOMKilled")
	want(t, n)

	n.w.Forget(p.UID)
	n.gone("/kubepods")
	n.group("/kubepods", counts{})
	n.w.Check()
	n.group("/kubepods", counts{oom: 1, kills: 1})
	n.group(n.path(p, ""), counts{oom: 1, kills: 1})
	n.group(n.path(p, "a-0"), counts{oom: 1, kills: 1})
	n.w.Check()
	want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
}

func TestNothingIsKnown(t *testing.T) {
	var none *Watcher
	none.Check()
	none.Forget("u")
	o := seen(ended("a-0", "a", 137, "Error"))
	if none.SetReasons(nil, o) != o {
		t.Error("a node without cgroups judges")
	}
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.driver = ""
	n.start()
	same(t, n.reasons(p, o), "Error")
	if got := n.w.SetReasons(p, nil); got != nil {
		t.Error(got)
	}
}

func TestAPodThatEndsForMemoryAgainAndAgain(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.start()
	var before []container.Container
	for i := range uint64(50) {
		id := fmt.Sprint("a-", i)
		n.pods[0].Status.ContainerStatuses[0].ContainerID = "containerd://" + id
		n.group("/kubepods", counts{oom: i + 1, kills: i + 1})
		n.group(n.path(p, ""), counts{oom: i + 1, kills: i + 1})
		n.group(n.path(p, id), counts{oom: 1, kills: 1})
		n.w.Check()
		want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
		n.gone(n.path(p, id))
		now := ended(id, "a", 137, "Error")
		same(t, n.reasons(p, seen(append([]container.Container{now}, before...)...))[:1], "OOMKilled")
		before = []container.Container{now}
	}
	if l := n.w.pods[p.UID]; len(l.containers) > 2 || len(l.classified) > 2 || l.unattributed() > 0 {
		t.Errorf("%d counts and %d verdicts are kept, %d are loose", len(l.containers), len(l.classified), l.unattributed())
	}
}

// The state does not grow with a container that loses a process to its limit in each
// attempt and exits for another reason, nor with sandboxes.
func TestACountThatNobodyAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.add("web", "64Mi")
		n.start()
		var before []container.Container
		for i := range uint64(50) {
			id, sandbox := fmt.Sprint("a-", i), fmt.Sprint("s-", i)
			n.pods[0].Status.ContainerStatuses[0].ContainerID = "containerd://" + id
			n.group("/kubepods", counts{oom: 2 * (i + 1), kills: 2 * (i + 1)})
			n.group(n.path(p, ""), counts{oom: 2 * (i + 1), kills: 2 * (i + 1)})
			n.group(n.path(p, id), counts{oom: 1, kills: 1})
			n.group(n.path(p, sandbox), counts{oom: 1, kills: 1})
			n.w.Check()
			want(t, n, "web OOMKilled: Container a reached its memory limit of 64Mi: a process of container a was killed")
			now, other := ended(id, "a", 1, "Error"), ended("b-0", "b", 137, "Error")
			same(t, n.reasons(p, seen(append([]container.Container{now, other}, before...)...))[:2], "Error", "Error")
			n.gone(n.path(p, id))
			n.gone(n.path(p, sandbox))
			before = []container.Container{now}
			time.Sleep(time.Minute)
		}
		same(t, n.reasons(p, seen(before...)), "Error")
		if l := n.w.pods[p.UID]; len(l.containers) > 2 || len(l.classified) > 2 || len(l.unreported) > 2 || l.unattributed() > 0 {
			t.Errorf("%d counts, %d verdicts and %d untold kills are kept, %d are loose", len(l.containers), len(l.classified), len(l.unreported), l.unattributed())
		}
	})
}

func TestALookAtNothingNewAllocatesLittle(t *testing.T) {
	n := newNode(t)
	p := n.add("web", "64Mi")
	n.start()
	o := seen(container.Container{ID: "a-0", Name: "a", State: container.StateRunning})
	if got := testing.AllocsPerRun(100, func() { n.w.SetReasons(p, o) }); got > 6 {
		t.Errorf("%v allocations to judge a pod that runs", got)
	}
}
