package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/cgroups"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

// scarce is a board whose pods use what the test says, as long as they run.
type scarce struct {
	*lab
	cgroups *cgroupstest.Hierarchy
	tree    *cgroups.Tree

	mu            sync.Mutex       // guards use, kernel, tasks and free
	use           map[string]int64 // by pod, in MiB
	kernel        int64            // what the kernel has of the memory, in MiB
	tasks         int64
	free          func() int64 // of the disk of 1000 MiB, in MiB
	pods          []*v1.Pod
	notifications notifications
	sign          func() // what the kernel does when memory runs short
	refuse        error  // what it says when asked to
}

// notifications are the kernel's, as the test has them.
type notifications struct {
	pressure func(f func()) error
	memory   func(cgroup string, f func(error)) (stop func(), err error) // nil: no cgroup exists
}

func (n *notifications) MemoryPressure(f func()) (func(), error) { return func() {}, n.pressure(f) }

func (n *notifications) Memory(cgroup string, f func(error)) (func(), error) {
	if n.memory == nil {
		return nil, cgroups.ErrNotFound
	}
	return n.memory(cgroup, f)
}

func (n *notifications) Pids(string, func(error)) (func(), error) { return nil, cgroups.ErrNotFound }

func (n *notifications) ID(string) (uint64, error) { return 0, cgroups.ErrNotFound }

// board has 256 MiB of memory and 1000 tasks.
const boardMemory = 256

// running are the names of the pods of which a container runs.
func (s *scarce) alive() (names []string) {
	for _, c := range s.runtime.AllContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			names = append(names, c.GetLabels()["io.kubernetes.pod.name"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *scarce) load(time.Time) (machine.Load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := boardMemory - s.kernel
	for _, name := range s.alive() {
		left -= s.use[name]
	}
	return machine.Load{Memory: boardMemory << 20, Available: uint64(max(left, 0)) << 20, AvailableKnown: true, Tasks: s.tasks, MaxTasks: 1000}, nil
}

func (s *scarce) space(path string) (diskusage.Space, error) {
	if _, err := os.Stat(path); err != nil {
		return diskusage.Space{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := int64(900)
	if s.free != nil {
		left = s.free()
	}
	return diskusage.Space{Device: 1, Available: left << 20, Capacity: 1000 << 20}, nil
}

// set changes what the board has; the loop of evictions reads it meanwhile.
func (s *scarce) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// scarcity runs a test on such a board.
func scarcity(t *testing.T, test func(t *testing.T, s *scarce)) {
	t.Helper()
	h, tree := cgroupstest.New(t)
	h.Uses("/", 0, 10<<20)
	bubble(t, func(t *testing.T, l *lab) {
		s := &scarce{lab: l, cgroups: h, tree: tree, use: map[string]int64{}}
		l.cfg.Kubelet.EvictionHard = evictionapi.DefaultHard(boardMemory << 20)
		l.prepare = func(p *agent) {
			p.eviction.ReadLoad, p.eviction.Space, p.eviction.Tree = s.load, s.space, tree
			p.tree = tree
			p.eviction.Notifications = &s.notifications
			s.notifications.pressure = func(f func()) error { s.sign = f; return s.refuse }
		}
		test(t, s)
	})
}

// run has the API server's pods run.
func (s *scarce) run(pods ...*v1.Pod) {
	s.t.Helper()
	s.pods = append(s.pods, pods...)
	if s.stop == nil {
		s.start()
	}
	s.agent.mux.Set(s.t.Context(), pod.SourceAPI, source.PodSet{Pods: s.pods})
	s.settle(30 * time.Second)
}

// uses writes what the pods use into their groups.
func (s *scarce) uses(mib map[string]int64) {
	s.t.Helper()
	n, ok := s.agent.node.Peek()
	if !ok {
		s.t.Fatal("the runtime has not told its cgroup driver")
	}
	for _, p := range s.pods {
		of, ok := mib[p.Name]
		if !ok {
			continue
		}
		s.set(func() { s.use[p.Name] = of })
		group := criconfig.PodCgroup(p, n)
		s.cgroups.Uses(group, 0, int(of<<20))
		for _, c := range s.runtime.AllContainers() {
			if c.GetLabels()["io.kubernetes.pod.uid"] == string(p.UID) {
				s.cgroups.Uses(criconfig.ContainerCgroup(group, c.GetId(), n), 0, int(of<<20))
			}
		}
	}
}

// asking is a pod that asks for so much memory, and no more if it is bounded.
func asking(t *testing.T, name, mib string, bounded bool) *v1.Pod {
	resources := ""
	if mib != "" {
		resources = "requests: {cpu: 10m, memory: " + mib + "Mi}"
	}
	if bounded {
		resources += ", limits: {cpu: 10m, memory: " + mib + "Mi}"
	}
	return parse(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 30
  containers: [{name: main, image: %q, command: [sh, -c, sleep infinity], resources: {%s}}]
`, name, busybox, resources))[0]
}

// three are a pod whose working set is its request, one that takes more than
// it asked for, and one that asked for nothing.
func three(t *testing.T) (kept, leaker, hog *v1.Pod) {
	return asking(t, "kept", "100", true), asking(t, "leaker", "20", false), asking(t, "hog", "", false)
}

func (s *scarce) event(reason string) (found string, annotations map[string]string) {
	for _, e := range s.agent.events.Recent() {
		if e.Reason == reason {
			found, annotations = e.Message, e.Annotations
		}
	}
	return found, annotations
}

// The pods that take more than they asked for go, one after the other, until
// there is enough; the sign of the kernel has its decision within a second, and
// a hard threshold leaves a pod a second.
func TestEvictionByMemory(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		kept, leaker, hog := three(t)
		s.run(kept, leaker, hog)
		s.uses(map[string]int64{kept.Name: 100, leaker.Name: 60, hog.Name: 30})
		s.settle(time.Minute)
		if got := s.alive(); len(got) != 3 || s.agent.eviction.Conditions() != (evictionapi.Conditions{}) {
			t.Fatalf("with enough memory: %v run", got)
		}
		s.uses(map[string]int64{leaker.Name: 75, hog.Name: 70})
		if s.sign == nil {
			t.Fatal("nobody listens for the kernel's signs")
		}
		s.sign()
		s.settle(time.Second)
		if !s.agent.eviction.Conditions().Memory {
			t.Error("a second after the sign nothing is decided")
		}
		s.settle(3 * time.Second) // its program does not heed the stop signal
		if got := s.alive(); !slices.Equal(got, []string{kept.Name, leaker.Name}) {
			t.Errorf("%v run", got)
		}
		st := s.status(hog.UID)
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || !strings.HasPrefix(st.Message, "The node was low on resource: memory. Threshold quantity: 16Mi, available: 11Mi. Container main was using 70Mi, request is 0, has larger consumption of memory. ") {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		if condition(st, v1.DisruptionTarget) != v1.ConditionTrue {
			t.Errorf("conditions %+v", st.Conditions)
		}
		message, annotations := s.event("Evicted")
		want := map[string]string{"offending_containers": "main", "offending_containers_usage": "70Mi", "starved_resource": "memory"}
		if d := cmp.Diff(want, annotations); d != "" || message != st.Message {
			t.Errorf("event %q (-want +got):\n%s", message, d)
		}
		if message, _ := s.event("EvictionThresholdMet"); message != "Attempting to reclaim memory" {
			t.Errorf("event of the node %q", message)
		}
		metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, s.agent.syncer.WriteMetrics, upstreams[0]), "kubelet_evictions{eviction_signal=\"memory.available\"} 1\n")

		s.uses(map[string]int64{leaker.Name: 150}) // less than nothing is left
		s.sign()
		s.settle(5 * time.Second)
		if got := s.alive(); !slices.Equal(got, []string{kept.Name}) {
			t.Errorf("in the end %v run", got)
		}
		if got := s.agent.pressureConditions(); len(got) != 3 || got[0].Type != "MemoryPressure" || got[0].Healthy() || !got[1].Healthy() || !got[2].Healthy() {
			t.Errorf("conditions of a board alone: %+v", got)
		}
		s.settle(4 * time.Minute)
		if !s.agent.eviction.Conditions().Memory {
			t.Error("the condition went before its transition period")
		}
		s.settle(2 * time.Minute)
		if s.agent.eviction.Conditions().Memory {
			t.Error("the condition stays")
		}
	})
}

// The root's working set does not have the kernel's own memory, so that by it
// alone there would be enough.
func TestKernelMemoryCounts(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		hog := asking(t, "hog", "", false)
		s.run(hog)
		s.uses(map[string]int64{hog.Name: 200})
		s.agent.eviction.Trigger()
		s.settle(5 * time.Second)
		if got := s.alive(); len(got) != 1 {
			t.Fatalf("with 56 MiB left %v run", got)
		}
		s.set(func() { s.kernel = 45 })
		s.agent.eviction.Trigger()
		s.settle(5 * time.Second)
		if got := s.alive(); len(got) != 0 {
			t.Errorf("with 11 MiB left %v run", got)
		}
	})
}

// Pages of agent and runtime that their group protects are nobody's to have.
func TestProtectedPagesAreNotAvailable(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		hog := asking(t, "hog", "", false)
		s.run(hog)
		s.uses(map[string]int64{hog.Name: 200})
		s.agent.eviction.AgentCgroup = "/tinylet"
		group := func(current, locked int) {
			s.cgroups.Write("tinylet", map[string]string{
				"cgroup.controllers": "memory\n", "memory.min": fmt.Sprintln(64 << 20), "memory.current": fmt.Sprintln(current << 20), "memory.stat": fmt.Sprintf("anon 0\nfile %d\nactive_file %d\ninactive_file 0\n", 45<<20, (45-locked)<<20),
			})
			s.agent.eviction.Trigger()
			s.settle(5 * time.Second)
		}
		group(64+45, 0) // all that it has beyond its protection
		if got := s.alive(); len(got) != 1 {
			t.Fatalf("with 56 MiB left %v run", got)
		}
		group(64, 44) // the kernel's estimate has one MiB of them
		if got := s.alive(); len(got) != 1 {
			t.Fatalf("with 55 MiB left that nobody has locked %v run", got)
		}
		group(64, 0)
		if got := s.alive(); len(got) != 0 {
			t.Errorf("with 56 MiB left, of which 45 are protected, %v run", got)
		}
	})
}

// What pods may have together has its threshold, where the kernel enforces it.
func TestEvictionByAllocatable(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		_, leaker, hog := three(t)
		s.run(leaker, hog)
		s.uses(map[string]int64{leaker.Name: 20, hog.Name: 30})
		s.cgroups.Uses("kubepods", 0, 50<<20)
		s.agent.eviction.Trigger()
		s.settle(5 * time.Second)
		s.cgroups.Write("kubepods", map[string]string{"memory.max": fmt.Sprintln(60 << 20)})
		s.agent.eviction.Trigger()
		s.settle(300 * time.Millisecond)
		s.cgroups.Uses("kubepods", 0, 20<<20)
		s.settle(5 * time.Second)
		if got := s.alive(); !slices.Equal(got, []string{leaker.Name}) {
			t.Errorf("%v run", got)
		}
		metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, s.agent.syncer.WriteMetrics, upstreams[0]), "kubelet_evictions{eviction_signal=\"allocatableMemory.available\"} 1\n")
	})
}

// deleted is a pod that the API server wants gone within so many seconds.
func deleted(p *v1.Pod, seconds int64) *v1.Pod {
	p = p.DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &seconds
	return p
}

// A pod that takes its time to end has less of it once the node runs short, and
// nobody else goes for what it holds.
func TestEvictionHurriesWhoEnds(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		_, leaker, hog := three(t)
		s.run(leaker, hog)
		s.uses(map[string]int64{leaker.Name: 40, hog.Name: 100})
		s.pods = nil
		s.run(leaker, deleted(hog, 600))
		if got := s.alive(); len(got) != 2 {
			t.Fatalf("%v run", got)
		}
		s.uses(map[string]int64{leaker.Name: 95, hog.Name: 150})
		s.sign()
		s.settle(4 * time.Second)
		if got := s.alive(); !slices.Equal(got, []string{leaker.Name}) {
			t.Errorf("%v run", got)
		}
		if st := s.status(leaker.UID); st.Reason != "" {
			t.Errorf("leaker: %s %q", st.Reason, st.Message)
		}
	})
}

// A pod that does not end although it was hurried does not keep others.
func TestEvictionGoesOnBesideWhoHangs(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		_, leaker, hog := three(t)
		s.run(leaker, hog)
		s.uses(map[string]int64{leaker.Name: 60, hog.Name: 190})
		mend := s.runtime.Inject("StopContainer", fake.Fault{Err: errors.New("it hangs")})
		s.sign()
		s.settle(20 * time.Second)
		if st := s.events("Evicted"); st != 1 {
			t.Errorf("%d pods were evicted within the time of the first", st)
		}
		s.settle(20 * time.Second)
		if st := s.events("Evicted"); st != 2 {
			t.Errorf("%d pods were evicted after it", st)
		}
		mend()
		s.settle(time.Minute)
		if got := s.alive(); len(got) != 0 {
			t.Errorf("in the end %v run", got)
		}
	})
}

// events is how many pods have an event of that reason.
func (s *scarce) events(reason string) (n int) {
	for _, e := range s.agent.events.Recent() {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

// A pod that goes for a soft threshold, in its own time, goes at once when the
// hard one is met.
func TestHardThresholdDuringSoftEviction(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		k := &s.cfg.Kubelet
		k.EvictionSoft = map[string]string{"memory.available": "60Mi"}
		k.EvictionSoftGracePeriod = map[string]string{"memory.available": "10s"}
		k.EvictionMaxPodGracePeriod = 600
		_, leaker, hog := three(t)
		long := int64(300)
		hog.Spec.TerminationGracePeriodSeconds = &long
		s.run(leaker, hog)
		s.uses(map[string]int64{leaker.Name: 20, hog.Name: 190})
		s.agent.eviction.Trigger()
		s.settle(100 * time.Second) // longer than a pod that hangs is waited for
		if got := s.alive(); len(got) != 2 || s.status(leaker.UID).Reason != "" {
			t.Fatalf("within its time: %v run, leaker %q", got, s.status(leaker.UID).Message)
		}
		s.uses(map[string]int64{hog.Name: 230})
		s.sign()
		s.settle(4 * time.Second)
		if got := s.alive(); !slices.Equal(got, []string{leaker.Name}) {
			t.Errorf("%v run", got)
		}
	})
}

// A soft threshold waits for its grace, and leaves a pod its own time up to
// the longest.
func TestEvictionAfterGrace(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		k := &s.cfg.Kubelet
		k.EvictionSoft = map[string]string{"memory.available": "60Mi"}
		k.EvictionSoftGracePeriod = map[string]string{"memory.available": "40s"}
		k.EvictionMaxPodGracePeriod = 10
		hog := asking(t, "hog", "", false)
		s.run(hog)
		s.uses(map[string]int64{hog.Name: 210})
		s.agent.eviction.Trigger()
		s.settle(39 * time.Second)
		if got := s.alive(); len(got) != 1 || s.status(hog.UID).Reason != "" || !s.agent.eviction.Conditions().Memory {
			t.Fatalf("within the grace: %v run, %+v", got, s.agent.eviction.Conditions())
		}
		s.settle(10 * time.Second)
		if got := s.alive(); len(got) != 1 {
			t.Errorf("before its own time was over: %v run", got)
		}
		s.settle(3 * time.Second)
		if got := s.alive(); len(got) != 0 || s.status(hog.UID).Reason != "Evicted" {
			t.Errorf("after it: %v run", got)
		}
	})
}

func TestEvictionByTasks(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		s.cfg.Kubelet.EvictionHard = map[string]string{"pid.available": "10%"}
		kept, leaker, hog := three(t)
		s.run(kept, leaker, hog)
		for i, p := range s.pods {
			s.uses(map[string]int64{p.Name: 1})
			n, _ := s.agent.node.Peek()
			s.cgroups.Write(criconfig.PodCgroup(p, n), map[string]string{"pids.current": fmt.Sprintln(10 + i*100%200)})
		}
		s.set(func() { s.tasks = 901 })
		s.agent.eviction.Trigger()
		s.settle(300 * time.Millisecond)
		s.set(func() { s.tasks = 800 })
		s.settle(5 * time.Second)
		if got := s.alive(); !slices.Equal(got, []string{hog.Name, kept.Name}) {
			t.Errorf("%v run", got)
		}
		if got := s.agent.eviction.Conditions(); got != (evictionapi.Conditions{PID: true}) {
			t.Errorf("under %v", got)
		}
		if st := s.status(leaker.UID); !strings.Contains(st.Message, "The node was low on resource: pids. Threshold quantity: 100, available: 99. ") {
			t.Errorf("%q", st.Message)
		}
	})
}

// A full disk costs what nobody needs first: containers that have ended, then
// images, and only then the pod that has most on it.
func TestEvictionByDisk(t *testing.T) {
	for _, tc := range []struct {
		name          string
		dead, unused  int64 // MiB that go with the one and the other
		taken         int64 // MiB of all else
		want          []string
		short         bool
		evictedSignal string
	}{
		{name: "dead containers are enough", dead: 60, unused: 10, taken: 860, want: []string{"RemoveContainer", "RemoveImage"}, short: true},
		{name: "with the images it is enough", dead: 10, unused: 60, taken: 860, want: []string{"RemoveContainer", "RemoveImage"}, short: true},
		{name: "a pod has to go", dead: 1, unused: 1, taken: 930, want: []string{"RemoveContainer", "RemoveImage", "StopContainer"}, short: true, evictedSignal: "nodefs.available"},
		{name: "there is enough", dead: 60, unused: 60, taken: 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scarcity(t, func(t *testing.T, s *scarce) {
				s.cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "10%"}
				small, big := asking(t, "small", "", false), asking(t, "big", "", false)
				crasher := shell(t, "crasher", "Always", "sleep 200; exit 1")
				s.runtime.AddImage("unused:1", fake.Program{})
				s.run(small, big, crasher)
				once, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := s.agent.images.Run(once); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				s.settle(25 * time.Minute) // it has ended a few times, and the image is old
				volume := filepath.Join(s.cfg.Paths.PodLogs, "default_"+big.Name+"_"+string(big.UID), "main")
				if err := os.MkdirAll(volume, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(volume, "0.log"), make([]byte, 1<<20), 0o600); err != nil {
					t.Fatal(err)
				}
				dead := func() (n int) {
					for _, c := range s.runtime.AllContainers() {
						if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
							n++
						}
					}
					return n
				}
				if dead() != 1 {
					t.Fatalf("%d containers have ended", dead())
				}
				before := len(s.runtime.Calls())
				free := func() int64 {
					left := 1000 - tc.taken
					if dead() > 0 && slices.Contains(s.alive(), crasher.Name) {
						left -= tc.dead
					}
					if s.runtime.ImageBytes() > 0 && s.hasImage("unused:1") {
						left -= tc.unused
					}
					if !slices.Contains(s.alive(), big.Name) {
						left += 500
					}
					return left
				}
				s.set(func() { s.free = free })
				s.agent.eviction.Trigger()
				s.settle(8 * time.Second)
				var did []string
				for _, c := range s.runtime.Calls()[before:] {
					switch c.Method {
					case "RemoveContainer", "RemoveImage", "StopContainer":
						if !slices.Contains(did, c.Method) {
							did = append(did, c.Method)
						}
					}
				}
				if d := cmp.Diff(tc.want, did); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if got := s.agent.eviction.Conditions().Disk; got != tc.short {
					t.Errorf("DiskPressure %t", got)
				}
				if st := s.status(small.UID); st.Phase != v1.PodRunning {
					t.Errorf("small: %+v", st)
				}
				if st := s.status(big.UID); (st.Reason == "Evicted") != (tc.evictedSignal != "") {
					t.Errorf("big: %s %q", st.Reason, st.Message)
				}
			})
		})
	}
}

func (s *scarce) hasImage(name string) bool {
	status, err := s.runtime.ImageStatus(s.t.Context(), &runtimeapi.ImageSpec{Image: name})
	return err == nil && status != nil
}

// A pod that has been evicted leaves its containers, which take the disk
// until nobody asks for them any more. On a board alone somebody may.
func TestSettled(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		hog := asking(t, "hog", "", false)
		s.run(hog)
		reclaimed := func(want bool, when string) {
			t.Helper()
			if err := s.agent.eviction.Reclaim(t.Context(), policy.DeadContainers); err != nil {
				t.Error(err)
			}
			if n := len(s.runtime.AllContainers()); (n == 0) != want {
				t.Errorf("%s: %d containers are left", when, n)
			}
		}
		reclaimed(false, "the pod runs")
		s.uses(map[string]int64{hog.Name: 250})
		s.agent.eviction.Trigger()
		s.settle(10 * time.Second)
		reclaimed(false, "the node is standalone")
		known := hog.DeepCopy()
		known.Status.Phase = v1.PodRunning
		c := &reportingStage{cluster: &cluster{}, reporter: statusmanager.New(statusmanager.Config{})}
		c.reporter.SetPods([]*v1.Pod{known})
		s.agent.evictable.Recorded = c.isRecorded
		reclaimed(false, "the API server has the pod as running")
		known.Status.Phase = v1.PodFailed
		reclaimed(true, "the API server has the pod's final status")
		if st := s.status(hog.UID); st.Reason != "Evicted" || len(st.ContainerStatuses) != 1 || st.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("the status forgot: %+v", st)
		}
	})
}

// Under pressure of memory no new pod comes that asked for nothing, but for
// critical ones; nor any pod under pressure of the disk.
func TestAdmissionUnderPressure(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		hog := asking(t, "hog", "", false)
		s.run(hog)
		s.uses(map[string]int64{hog.Name: 245})
		s.agent.eviction.Trigger()
		s.settle(10 * time.Second)
		static := asking(t, "static", "", false)
		s.want(static)
		plain, modest := asking(t, "plain", "", false), asking(t, "modest", "1", false)
		s.run(plain, modest)
		if got := s.alive(); !slices.Equal(got, []string{modest.Name, static.Name}) {
			t.Errorf("under memory pressure %v run", got)
		}
		st := s.status(plain.UID)
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || st.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		s.set(func() { s.free = func() int64 { return 10 } })
		s.agent.eviction.Trigger()
		s.settle(time.Second)
		late := asking(t, "late", "1", false)
		s.run(late)
		if st := s.status(late.UID); st.Reason != "Evicted" || !strings.Contains(st.Message, "[MemoryPressure DiskPressure]") {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		s.set(func() { s.free, s.use = nil, map[string]int64{} })
		s.agent.eviction.Trigger()
		s.settle(6 * time.Minute)
		free := asking(t, "free", "", false)
		s.run(free)
		if st := s.status(free.UID); st.Phase != v1.PodRunning {
			t.Errorf("after the pressure: %s %s %q", st.Phase, st.Reason, st.Message)
		}
	})
}

// Static pods stay: nobody would bring them back.
func TestStaticPodsStay(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		hog := asking(t, "hog", "", false)
		s.want(hog)
		s.start()
		s.settle(20 * time.Second)
		s.pods = []*v1.Pod{hog}
		s.uses(map[string]int64{hog.Name: 250})
		s.sign()
		s.settle(time.Minute)
		if got := s.alive(); len(got) != 1 || !s.agent.eviction.Conditions().Memory {
			t.Errorf("%v run, under %v", got, s.agent.eviction.Conditions())
		}
	})
}

// A container is held to its limit of local storage, and so is its pod.
func TestEphemeralStorageLimit(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: chatty}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], resources: {limits: {ephemeral-storage: 64Ki}}}]
`)[0]
		l.start()
		l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}})
		l.settle(2 * time.Minute)
		if s := l.status(p.UID); s.Phase != v1.PodRunning {
			t.Fatalf("within its limit: %+v", s)
		}
		file := filepath.Join(l.cfg.Paths.PodLogs, "default_"+p.Name+"_"+string(p.UID), "main", "0.log")
		if err := os.WriteFile(file, make([]byte, 128<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		l.settle(2 * time.Minute)
		s := l.status(p.UID)
		if s.Reason != "Evicted" || s.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 64Ki. " {
			t.Errorf("over its limit: %s %s %q", s.Phase, s.Reason, s.Message)
		}
		if condition(s, v1.DisruptionTarget) != "absent" {
			t.Errorf("a pod that is to blame itself has %+v", s.Conditions)
		}
		metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, l.agent.syncer.WriteMetrics, upstreams[0]), "kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"} 1\n")
	})
}

// A static pod keeps its UID. One that comes back before it has ended is held
// to its limits like a new one.
func TestLimitOfAPodThatComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := limitedTo(t, "64Ki")
		l.want(p)
		l.start()
		l.settle(2 * time.Minute)
		l.want()
		l.settle(5 * time.Second)
		l.want(p)
		l.settle(5 * time.Minute)
		if s := l.status(p.UID); s.Phase != v1.PodRunning {
			t.Fatalf("it is back: %+v", s)
		}
		l.fills(p, 128<<10)
		l.settle(2 * time.Minute)
		if s := l.status(p.UID); s.Reason != "Evicted" {
			t.Errorf("over its limit: %s %q", s.Phase, s.Reason)
		}
	})
}

// limitedTo is a pod that may have so much on the node's disk, and takes a
// minute to end.
func limitedTo(t *testing.T, limit string) *v1.Pod {
	t.Helper()
	return parse(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: chatty}
spec:
  terminationGracePeriodSeconds: 60
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], resources: {limits: {ephemeral-storage: %s}}}]
`, limit))[0]
}

// fills has a pod's first container have a log of so many bytes.
func (l *lab) fills(p *v1.Pod, bytes int) {
	l.t.Helper()
	file := filepath.Join(l.cfg.Paths.PodLogs, "default_"+p.Name+"_"+string(p.UID), "main", "0.log")
	if err := os.WriteFile(file, make([]byte, bytes), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// What a static pod has left on the disk that was evicted for it goes when the
// disk is needed. It begins anew with the agent.
func TestEvictedStaticPodGivesItsDiskBack(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		s.cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "10%"}
		p, other := limitedTo(t, "64Ki"), shell(t, "done", "OnFailure", "exit 0")
		s.want(p, other)
		s.start()
		s.settle(time.Minute)
		s.fills(p, 128<<10)
		s.settle(2 * time.Minute)
		if st := s.status(p.UID); st.Reason != "Evicted" {
			t.Fatalf("over its limit: %s %q", st.Phase, st.Reason)
		}
		s.set(func() { s.free = func() int64 { return 10 } })
		s.agent.eviction.Trigger()
		s.settle(10 * time.Second)
		for _, c := range s.runtime.AllContainers() {
			if c.GetLabels()["io.kubernetes.pod.name"] == p.Name {
				t.Errorf("its container is left: %v", c.GetState())
			}
		}
		if n := len(s.runtime.AllContainers()); n != 1 {
			t.Errorf("%d containers are left: that of a pod that has done its work has to be", n)
		}
		if st := s.status(p.UID); st.Reason != "Evicted" || st.Phase != v1.PodFailed {
			t.Errorf("the status forgot: %s %q", st.Phase, st.Reason)
		}
		s.kill()
		s.set(func() { s.free = nil })
		s.start()
		s.settle(time.Minute)
		if got := s.alive(); !slices.Equal(got, []string{p.Name}) {
			t.Errorf("after a restart %v run", got)
		}
	})
}

// A threshold that is more than the disk has is told of, since a configuration
// may be that of a larger board.
func TestThresholdsBeyondTheDisk(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		var log bytes.Buffer
		s.cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "10Gi", "imagefs.available": "10%", "pid.available": "2k"}
		s.set(func() { s.tasks = 100 })
		before := s.prepare
		s.prepare = func(p *agent) {
			before(p)
			p.eviction.Log = slog.New(slog.NewTextHandler(&log, nil))
		}
		s.start()
		s.settle(time.Minute)
		s.kill()
		for _, want := range []string{"field=evictionHard[nodefs.available] threshold=10737418240 capacity=1048576000", "field=evictionHard[pid.available] threshold=2000 capacity=1000"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("no %q in: %s", want, log.String())
			}
		}
		if strings.Contains(log.String(), "containerfs") || strings.Contains(log.String(), "imagefs") {
			t.Errorf("the log: %s", log.String())
		}
	})
}

// Whoever starts or ends a container has the disks looked at; a board that is
// left alone is not looked at.
func TestWhoHasTheDisksLookedAt(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		looks := 0
		s.free = func() int64 { looks++; return 900 } // before the loop runs
		counted := func() (n int) {
			s.set(func() { n, looks = looks, 0 })
			return n
		}
		s.run(asking(t, "a", "", false))
		if n := counted(); n < 3 {
			t.Errorf("%d looks while a pod starts", n)
		}
		s.settle(24 * time.Hour)
		if n := counted(); n != 0 {
			t.Errorf("%d looks in a day", n)
		}
		s.runtime.ExitContainer(s.runtime.AllContainers()[0].GetId(), 1)
		s.settle(time.Second)
		if counted() == 0 {
			t.Error("no look when containers end")
		}
	})
}

// A kernel without PSI is told of once, and all else goes on.
func TestWithoutPressure(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		s.refuse = cgroups.ErrPressure
		watched, ended := 0, 0
		var told func(error)
		before := s.prepare
		s.prepare = func(p *agent) {
			before(p)
			s.notifications.memory = func(group string, f func(error)) (func(), error) {
				if group != "kubepods" && group != "/kubepods" {
					t.Errorf("watched is %q", group)
				}
				told = f
				watched++
				return func() { ended++ }, nil
			}
		}
		hog := asking(t, "hog", "", false)
		s.run(hog)
		if watched != 1 {
			t.Fatalf("the pods' group is watched %d times", watched)
		}
		told(errors.New("it was removed"))
		s.agent.eviction.Trigger()
		s.settle(time.Second)
		if watched != 2 || ended != 1 {
			t.Errorf("watched %d times, ended %d", watched, ended)
		}
		s.uses(map[string]int64{hog.Name: 250})
		told(nil)
		s.settle(4 * time.Second)
		if got := s.alive(); len(got) != 0 {
			t.Errorf("%v run", got)
		}
	})
}

// The Node's status has the pressures that the node is under.
func TestPressuresInTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.start()
		under := evictionapi.Conditions{}
		n := registration.NewCollector(registration.CollectorConfig{
			Config: l.cfg, Node: l.agent.node, RuntimeHealthy: func(time.Time) error { return nil },
			Problem: func() string { return "" }, ShuttingDown: func() bool { return false },
			Pressures: func() evictionapi.Conditions { return under },
		})
		var had *v1.NodeStatus
		for _, want := range []struct {
			under evictionapi.Conditions
			said  string
		}{
			{evictionapi.Conditions{}, "MemoryPressure=False KubeletHasSufficientMemory, DiskPressure=False KubeletHasNoDiskPressure, PIDPressure=False KubeletHasSufficientPID"},
			{evictionapi.Conditions{Memory: true, PID: true}, "MemoryPressure=True KubeletHasInsufficientMemory, DiskPressure=False KubeletHasNoDiskPressure, PIDPressure=True KubeletHasInsufficientPID"},
			{evictionapi.Conditions{Disk: true}, "MemoryPressure=False KubeletHasSufficientMemory, DiskPressure=True KubeletHasDiskPressure, PIDPressure=False KubeletHasSufficientPID"},
		} {
			under = want.under
			status, _ := nodestatus.Status(had, n.Get(t.Context())) // no addresses: the machine may have none
			had = &status
			var said []string
			for _, c := range status.Conditions {
				if c.Type != v1.NodeReady {
					said = append(said, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
				}
			}
			if got := strings.Join(said, ", "); got != want.said {
				t.Errorf("%+v: %s, want %s", want.under, got, want.said)
			}
		}
	})
}

// Of whatever moment after an eviction the power goes, or the agent: what the API
// server may have heard is true after it, though its containers are gone by then
// and the server, which was away, has the pod as running.
func TestEvictedPodStaysSo(t *testing.T) {
	for after := time.Duration(0); after <= 4*time.Second; after += 200 * time.Millisecond {
		for _, reboots := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v later, reboot %t", after, reboots), func(t *testing.T) {
				dir := t.TempDir()
				bubble(t, func(t *testing.T, l *lab) {
					l.join(dir)
					hog := asking(t, "hog", "", false)
					delete(hog.Annotations, pod.AnnotationSource)
					set := func(name string, w source.PodSet) {
						l.done.Go(func() { l.agent.mux.Set(t.Context(), name, w) })
					}
					set(pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{hog}})
					l.settle(time.Minute)
					l.agent.evictable.Evict(hog, policy.Eviction{Message: "why", Grace: time.Second, Condition: &v1.PodCondition{Reason: "TerminationByKubelet", Message: "why"}})
					l.settle(after)
					if err := l.agent.eviction.Reclaim(t.Context(), policy.DeadContainers); err != nil {
						t.Fatal(err)
					}
					e := l.reportable()
					told := len(e) == 1 && e[0].Status != nil && e[0].Status.Phase == v1.PodFailed
					if after > 2*time.Second && (!told || len(l.runtime.AllContainers()) > 0) {
						t.Errorf("%v after it %+v would be told, and there are %d containers", after, e, len(l.runtime.AllContainers()))
					}
					l.leave()
					if reboots {
						l.runtime.Reboot()
					}
					l.join(dir)
					set(pod.SourceRestore, source.PodSet{Pods: l.agent.cluster.journal.Pods()})
					l.settle(time.Minute)
					had := hog.DeepCopy()
					had.Status.Phase = v1.PodRunning
					set(pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{had}, Replaces: pod.SourceRestore})
					l.settle(time.Minute)
					if runs := len(l.running()) > 0; runs == told {
						t.Errorf("it runs: %t, and that it was evicted could have been told: %t", runs, told)
					}
					if s := l.status(hog.UID); told && (s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != "why" || condition(s, v1.DisruptionTarget) != v1.ConditionTrue || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated == nil) {
						t.Errorf("it is told as %+v", s)
					}
					l.leave()
				})
			})
		}
	}
}

// Who has filled the disk is known also where nobody has asked for figures
// before, and a request alone would not come to all pods.
func TestEvictionByDiskKnowsAllPods(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		s.cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "10%"}
		before := s.prepare
		s.prepare = func(p *agent) {
			before(p)
			var err error
			p.disks, err = diskusage.New(diskusage.Config{
				Pods: func(ctx context.Context) ([]diskusage.Pod, error) { return p.syncer.DiskPods(ctx), nil },
				Node: s.cfg.Paths.Root, Log: slog.New(slog.DiscardHandler), Entries: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var pods []*v1.Pod
		for i := range 12 {
			pods = append(pods, asking(t, fmt.Sprintf("p%02d", i), "", false))
		}
		s.run(pods...)
		for i, p := range pods {
			s.fills(p, 4<<10+i<<16)
		}
		hog := pods[len(pods)-1]
		s.set(func() {
			s.free = func() int64 {
				if slices.Contains(s.alive(), hog.Name) {
					return 50
				}
				return 500
			}
		})
		s.agent.eviction.Trigger()
		s.settle(10 * time.Second)
		if got := s.alive(); len(got) != len(pods)-1 || slices.Contains(got, hog.Name) {
			t.Errorf("%s has most on the disk, and %v run", hog.Name, got)
		}
	})
}

// Where no pod may go, such as on a board alone, its disks are not walked for
// that again and again while one is full.
func TestNobodyIsMeasuredWhoStays(t *testing.T) {
	scarcity(t, func(t *testing.T, s *scarce) {
		s.cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "10%"}
		measured := 0
		before := s.prepare
		s.prepare = func(p *agent) {
			before(p)
			var err error
			p.disks, err = diskusage.New(diskusage.Config{
				Pods: func(context.Context) ([]diskusage.Pod, error) { measured++; return nil, nil },
				Node: s.cfg.Paths.Root, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.want(asking(t, "static", "", false))
		s.set(func() { s.free = func() int64 { return 10 } })
		s.start()
		s.settle(5 * time.Minute)
		if !s.agent.eviction.Conditions().Disk || measured > 0 {
			t.Errorf("under %v, measured %d times", s.agent.eviction.Conditions(), measured)
		}
		s.kill()
	})
}

// A quiet node with the thresholds that it has by default waits for signs alone:
// neither the loop of evictions nor the limits have a timer. A bubble in which
// all are blocked, and none by the time, is one that cannot go on; a second look
// ends it.
func TestQuietNodeHasNoTimer(t *testing.T) {
	h, tree := cgroupstest.New(t)
	h.Uses("/", 0, 10<<20)
	dir, looks := t.TempDir(), 0
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "deadlock") {
			t.Errorf("something waits for the time: %v", err)
		}
		if looks == 0 {
			t.Error("nobody has looked")
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir)
		l.cfg.Kubelet.EvictionHard = evictionapi.DefaultHard(boardMemory << 20)
		s := &scarce{lab: l, cgroups: h, tree: tree, use: map[string]int64{}}
		agent, err := assemble(environment{cfg: l.cfg, runtime: l.runtime, log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		e := agent.eviction
		again := make(chan struct{})
		e.ReadLoad = func(now time.Time) (machine.Load, error) {
			if looks++; looks == 3 { // two are of the beginning
				close(again)
			}
			return s.load(now)
		}
		e.Space, e.Tree = s.space, tree
		e.Notifications = &notifications{pressure: func(func()) error { return nil }}
		for _, t := range evictionTasks(agent) {
			go agent.supervisor.Run(l.t.Context(), &t)
		}
		synctest.Wait()
		if looks != 2 || e.Conditions() != (evictionapi.Conditions{}) {
			t.Errorf("%d looks, under %v", looks, e.Conditions())
		}
		<-again
	})
}
