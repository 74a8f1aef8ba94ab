package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/source"
)

const resizedOnce = "ResizeStarted (Pod resize started), ResizeCompleted (Pod resize completed)"

// filesOf are those of a pod with one container of that size.
func filesOf(p *v1.Pod) string {
	r := criconfig.PodResources(p, &criconfig.Node{CPUCFSQuota: true})
	quota := fmt.Sprintf("%d %d", r.CPUMax.Quota, r.CPUMax.Period)
	return fmt.Sprintf("%d %s %d, %s %d", r.CPUWeight, quota, r.MemoryMax, quota, r.MemoryMax)
}

func TestResizeUpAndDown(t *testing.T) {
	for _, noSwap := range []bool{false, true} {
		t.Run(fmt.Sprintf("kernel without accounting of swap: %v", noSwap), func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				small := sized(t, "web", "250m", "64Mi")
				l.noSwap = noSwap
				l.withGroups(small)
				l.begin(small)
				running, changes := l.running(), l.changes()
				record := filepath.Join(l.cfg.Paths.Root, "tinylet", "allocations")
				if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("a record was written of a pod that nobody resized: %v", err)
				}
				large := grown(small, "500m", "128Mi")
				l.ask(large)
				checkFiles(t, l, large)
				checkProtected(t, l, large)
				l.resizedTo(large, "500m/500m 128Mi/128Mi of 500m 128Mi", 0)
				back := grown(large, "250m", "64Mi")
				l.ask(back)
				checkFiles(t, l, back)
				l.resizedTo(back, "250m/250m 64Mi/64Mi of 250m 64Mi", 0)
				if diff := cmp.Diff(running, l.running()); diff != "" || l.changes() != changes {
					t.Errorf("containers were changed %d times (-before +after):\n%s", l.changes()-changes, diff)
				}
				if got := l.told(back); got != resizedOnce+", "+resizedOnce {
					t.Errorf("events: %s", got)
				}
				looks := l.runtime.Count("ContainerStatus")
				l.settle(time.Hour)
				if n := l.runtime.Count("ContainerStatus") - looks; n > 2 {
					t.Errorf("looked at %d times in an idle hour", n)
				}
			})
		})
	}
}

func checkFiles(t *testing.T, l *sizes, p *v1.Pod) {
	t.Helper()
	if got, want := l.files(p), filesOf(p); got != want {
		t.Errorf("cgroup files: %s, want %s", got, want)
	}
}

// checkProtected checks that the memory is protected that a Guaranteed pod of
// one container asks for.
func checkProtected(t *testing.T, l *sizes, p *v1.Pod) {
	t.Helper()
	want := fmt.Sprint(p.Spec.Containers[0].Resources.Requests.Memory().Value())
	for _, group := range []string{"kubepods", l.groupOf(p), l.containerOf(p)} {
		if got := l.get(group + "/memory.min"); got != want {
			t.Errorf("%s bytes are protected of %s, want %s", got, group, want)
		}
	}
}

func TestResizeWithARestart(t *testing.T) {
	for _, row := range []struct {
		name        string
		policy      v1.ResourceName
		cpu, memory string
		shows       string
		restarts    int32
	}{
		{"up", v1.ResourceMemory, "250m", "128Mi", "250m/250m 128Mi/128Mi of 250m 128Mi", 1},
		{"down", v1.ResourceMemory, "250m", "32Mi", "250m/250m 32Mi/32Mi of 250m 32Mi", 1},
		{"only of what asks for one", v1.ResourceMemory, "500m", "64Mi", "500m/500m 64Mi/64Mi of 500m 64Mi", 0},
		{"cpu", v1.ResourceCPU, "500m", "128Mi", "500m/500m 128Mi/128Mi of 500m 128Mi", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				web := restartFor(sized(t, "web", "250m", "64Mi"), row.policy)
				l.withGroups(web)
				l.begin(web)
				l.put(l.groupOf(web)+"/memory.current", "60000000") // of a container that will be gone
				old := l.running()["web-board/c0"]
				web = grown(web, row.cpu, row.memory)
				l.want(web)
				l.settle(time.Second)
				l.put(l.groupOf(web)+"/memory.current", "1000000")
				l.settle(time.Minute)
				checkFiles(t, l, web)
				l.resizedTo(web, row.shows, row.restarts)
				if got := l.told(web); !strings.HasSuffix(got, "ResizeCompleted (Pod resize completed)") {
					t.Errorf("events: %s", got)
				}
				if again := l.running()["web-board/c0"] != old; again != (row.restarts > 0) {
					t.Errorf("another container: %v", again)
				}
			})
		})
	}
}

// A memory request is in no cgroup, and still counts for who wants a restart.
func TestResizeOfAMemoryRequest(t *testing.T) {
	for _, restart := range []bool{false, true} {
		sizing(t, func(t *testing.T, l *sizes) {
			web := sized(t, "web", "250m", "64Mi")
			delete(web.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
			want := int32(0)
			if restart {
				web, want = restartFor(web, v1.ResourceMemory), 1
			}
			l.begin(web)
			web = grown(web, "250m", "128Mi")
			delete(web.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
			l.want(web)
			l.settle(time.Minute)
			l.resizedTo(web, "250m/250m 128Mi/0 of 250m 128Mi", want)
			l.settle(time.Hour)
			l.resizedTo(web, "250m/250m 128Mi/0 of 250m 128Mi", want)
			if n := l.runtime.Count("UpdateContainerResources"); n > 1 {
				t.Errorf("%d updates", n)
			}
		})
	}
}

func TestDeferredUntilThereIsRoom(t *testing.T) {
	for _, row := range []struct {
		name string
		free func(l *sizes, web, other *v1.Pod)
	}{
		{"another is deleted", func(l *sizes, web, _ *v1.Pod) { l.want(web) }},
		{"another ends", func(l *sizes, _, _ *v1.Pod) { l.runtime.ExitContainer(l.running()["other-board/c0"], 0) }},
		{"another shrinks", func(l *sizes, web, other *v1.Pod) { l.want(web, grown(other, "200m", "64Mi")) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "500m", "64Mi")
				other.Spec.RestartPolicy = v1.RestartPolicyNever
				l.begin(web, other)
				web = grown(web, "600m", "64Mi")
				l.ask(web, other)
				if got, want := l.conditions(web), fmt.Sprintf("PodResizePending=Deferred@%d", web.Generation); got != want {
					t.Errorf("conditions %s, want %s", got, want)
				}
				if got := l.shows(web); got != "250m/250m 64Mi/64Mi of 250m 64Mi" {
					t.Errorf("shows %s", got)
				}
				if got := l.told(web); got != "ResizeDeferred (Pod resize OutOfcpu)" {
					t.Errorf("events: %s", got)
				}
				looks := l.runtime.Count("ContainerStatus")
				l.settle(time.Hour)
				if n := l.runtime.Count("ContainerStatus") - looks; n > 4 {
					t.Errorf("pods are looked at %d times in an hour of waiting", n)
				}
				row.free(l, web, other)
				l.settle(30 * time.Second)
				l.resizedTo(web, "600m/600m 64Mi/64Mi of 600m 64Mi", 0)
			})
		})
	}
}

// A wish that is taken back, or becomes one that fits, waits no more.
func TestDeferredAndThenAnother(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		web = grown(web, "3", "64Mi")
		l.ask(web)
		if got := l.conditions(web); !strings.HasPrefix(got, "PodResizePending=Deferred") {
			t.Errorf("conditions %s", got)
		}
		web = grown(web, "250m", "64Mi")
		l.ask(web)
		l.resizedTo(web, "250m/250m 64Mi/64Mi of 250m 64Mi", 0)
		web = grown(web, "300m", "64Mi")
		l.ask(web)
		l.resizedTo(web, "300m/300m 64Mi/64Mi of 300m 64Mi", 0)
		l.ask()
		if uids := l.agent.syncer.Allocations.UIDs(); len(uids) > 0 {
			t.Errorf("pods on record that are gone: %v", uids)
		}
	})
}

func TestInfeasible(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		set := l.prepare
		l.prepare = func(p *agent) { set(p); p.syncer.Resizable = resize.Features{StaticCPU: true} }
		web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "250m", "64Mi")
		l.begin(web, other)
		web = grown(web, "500m", "64Mi")
		l.ask(web, other)
		l.ask(web) // which frees room
		if got, want := l.conditions(web), fmt.Sprintf("PodResizePending=Infeasible@%d", web.Generation); got != want {
			t.Errorf("conditions %s, want %s", got, want)
		}
		if got := l.told(web); got != "ResizeInfeasible (Pod resize Infeasible)" {
			t.Errorf("events: %s", got)
		}
		if got := l.has(web); got != "250m 256 64Mi" {
			t.Errorf("has %s", got)
		}
	})
}

// A limit below what is used is not set, and is once less is used.
func TestMemoryBelowWhatIsUsed(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.withGroups(web)
		l.begin(web)
		was := l.files(web)
		l.put(l.containerOf(web)+"/memory.current", fmt.Sprint(50<<20))
		web = grown(web, "250m", "32Mi")
		l.ask(web)
		l.settle(10 * time.Minute)
		if got := l.files(web); got != was {
			t.Errorf("files %s, were %s", got, was)
		}
		if got, want := l.conditions(web), fmt.Sprintf("PodResizeInProgress=Error@%d", web.Generation); got != want {
			t.Errorf("conditions %s, want %s", got, want)
		}
		if got := l.shows(web); got != "250m/250m 64Mi/64Mi of 250m 32Mi" {
			t.Errorf("shows %s", got)
		}
		l.put(l.containerOf(web)+"/memory.current", fmt.Sprint(10<<20))
		l.settle(time.Minute)
		checkFiles(t, l, web)
		l.resizedTo(web, "250m/250m 32Mi/32Mi of 250m 32Mi", 0)
		if got := l.told(web); got != "ResizeStarted (Pod resize started), ResizeError (Pod resize error), ResizeCompleted (Pod resize completed)" {
			t.Errorf("events: %s", got)
		}
	})
}

// A container that starts while its pod cannot shrink yet has what was
// allocated, and the pod is not squeezed for it.
func TestStartWhileThePodCannotShrink(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.withGroups(web)
		l.begin(web)
		l.put(l.groupOf(web)+"/memory.current", fmt.Sprint(50<<20)) // such as of a volume in memory
		web = grown(web, "250m", "32Mi")
		l.ask(web)
		l.runtime.ExitContainer(l.running()[web.Name+"/c0"], 1)
		l.settle(10 * time.Minute)
		if pod, c := l.get(l.groupOf(web)+"/memory.max"), l.get(l.containerOf(web)+"/memory.max"); pod != fmt.Sprint(64<<20) || c != fmt.Sprint(32<<20) {
			t.Errorf("memory.max of the pod is %s, of the container %s", pod, c)
		}
		l.put(l.groupOf(web)+"/memory.current", fmt.Sprint(10<<20))
		l.settle(time.Minute)
		checkFiles(t, l, web)
		l.resizedTo(web, "250m/250m 32Mi/32Mi of 250m 32Mi", 1)
	})
}

func TestUpdatesThatFailForAWhile(t *testing.T) {
	for name, err := range map[string]error{"refused": errors.New("no"), "away": container.ErrUnavailable, "slow": container.ErrTimeout} {
		t.Run(name, func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				web := sized(t, "web", "250m", "64Mi")
				l.begin(web)
				remove := l.runtime.Inject("UpdateContainerResources", fake.Fault{Err: err})
				web = grown(web, "500m", "128Mi")
				l.ask(web)
				l.settle(10 * time.Minute)
				if got, want := l.conditions(web), fmt.Sprintf("PodResizeInProgress=Error@%d", web.Generation); got != want {
					t.Errorf("conditions %s, want %s", got, want)
				}
				remove()
				l.settle(time.Minute)
				l.resizedTo(web, "500m/500m 128Mi/128Mi of 500m 128Mi", 0)
				if got := l.told(web); got != "ResizeStarted (Pod resize started), ResizeError (Pod resize error), ResizeCompleted (Pod resize completed)" {
					t.Errorf("events: %s", got)
				}
			})
		})
	}
}

// A runtime that takes an update and does nothing is not asked without end.
func TestUpdatesThatDoNothing(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		deaf := deafRuntime{l.runtime, new(int)}
		l.agent.syncer.Runtime = deaf
		web = grown(web, "500m", "64Mi")
		l.ask(web)
		l.settle(time.Hour)
		if n := *deaf.updates; n < 2 || n > 30 {
			t.Errorf("%d updates in an hour", n)
		}
		if got := l.conditions(web); !strings.HasPrefix(got, "PodResizeInProgress=Error") {
			t.Errorf("conditions %s", got)
		}
	})
}

// TestResizeKilledAtEveryStep has the agent killed after each effect of a
// resize: once it is written down, in each write of a cgroup and each call,
// and before the status says so. The next one finishes from what it finds.
func TestResizeKilledAtEveryStep(t *testing.T) {
	for _, noSwap := range []bool{false, true} {
		for _, to := range [][2]string{{"500m", "128Mi"}, {"100m", "32Mi"}} {
			for _, late := range []bool{false, true} {
				for n := range 4 {
					t.Run(fmt.Sprintf("to %v, call %d, late %v, no swap %v", to, n, late, noSwap), func(t *testing.T) {
						sizing(t, func(t *testing.T, l *sizes) {
							web := sized(t, "web", "250m", "64Mi")
							l.noSwap = noSwap
							l.withGroups(web)
							l.begin(web)
							running := l.running()
							web = grown(web, to[0], to[1])
							// The calls of the sync are two lists, a status of the
							// sandbox and one of the container; then updates.
							method, skip := "ContainerStatus", 0
							if n > 0 {
								method, skip = "UpdateContainerResources", n-1
							}
							if n == 3 {
								method, skip = "ContainerStatus", 1
							}
							remove := l.runtime.Inject(method, fake.Fault{Hang: true, Late: late, Skip: skip, Times: 1})
							l.ask(web)
							l.kill()
							remove()
							l.begin(web)
							l.settle(time.Minute)
							checkFiles(t, l, web)
							checkProtected(t, l, web)
							l.resizedTo(web, fmt.Sprintf("%[1]s/%[1]s %[2]s/%[2]s of %[1]s %[2]s", to[0], to[1]), 0)
							if diff := cmp.Diff(running, l.running()); diff != "" {
								t.Errorf("containers (-before +after):\n%s", diff)
							}
						})
					})
				}
			}
		}
	}
}

// Somebody asks for more while no agent is there: it is decided as ever, and
// not taken for given, by what the API server was told.
func TestResizedWhileNoAgentWasThere(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "500m", "64Mi")
		l.begin(web, other)
		told := func(p *v1.Pod) *v1.Pod { p.Status = l.status(p.UID); return p }
		web, other = told(grown(web, "600m", "64Mi")), told(other.DeepCopy())
		l.kill()
		l.begin(web, other)
		if got := l.conditions(web); !strings.HasPrefix(got, "PodResizePending=Deferred") {
			t.Errorf("conditions %s", got)
		}
		if got := l.has(web); got != "250m 256 64Mi" {
			t.Errorf("has %s", got)
		}
		// And over another restart, when it is on record.
		since := l.status(web.UID).Conditions
		web = told(web)
		l.kill()
		l.settle(time.Minute)
		l.begin(web, other)
		if got := l.conditions(web); !strings.HasPrefix(got, "PodResizePending=Deferred") {
			t.Errorf("conditions after a restart: %s", got)
		}
		if diff := cmp.Diff(since, l.status(web.UID).Conditions); diff != "" {
			t.Errorf("conditions (-before the restart +after):\n%s", diff)
		}
		l.ask(web)
		l.resizedTo(web, "600m/600m 64Mi/64Mi of 600m 64Mi", 0)
	})
}

// A reboot without the API server brings back what was allocated, and not
// what was asked for.
func TestResizedPodAfterAReboot(t *testing.T) {
	for _, row := range []struct {
		name, cpu, has string
	}{
		{"allocated", "500m", "500m 512 64Mi"},
		{"deferred", "3", "250m 256 64Mi"},
	} {
		t.Run(row.name, func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				dir := t.TempDir()
				web := sized(t, "web", "250m", "64Mi")
				l.join(dir)
				l.settle(time.Second)
				l.ask(web)
				web = grown(web, row.cpu, "64Mi")
				l.ask(web)
				if got := l.has(web); got != row.has {
					t.Errorf("has %s, want %s", got, row.has)
				}
				l.leave()
				l.runtime.Reboot()
				l.api, l.wanted = false, nil // the API server is not there
				l.join(dir)
				l.done.Go(func() {
					l.agent.mux.Set(t.Context(), pod.SourceRestore, source.PodSet{Pods: l.agent.cluster.journal.Pods()})
				})
				l.settle(10 * time.Second)
				if got := l.has(web); got != row.has {
					t.Errorf("after the reboot it has %s, want %s", got, row.has)
				}
				if got := l.agent.cluster.journal.Pods(); len(got) != 1 || got[0].Spec.Containers[0].Resources.Requests.Cpu().String() != row.cpu {
					t.Errorf("the journal has %v", got)
				}
				l.leave()
			})
		})
	}
}

// A record that is lost costs a pod nothing but the decision.
func TestRecordOfAllocationsIsLost(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		web = grown(web, "500m", "128Mi")
		l.ask(web)
		l.kill()
		record := filepath.Join(l.cfg.Paths.Root, "tinylet", "allocations")
		if err := os.Truncate(record, 20); err != nil {
			t.Fatal(err)
		}
		running := l.running()
		l.begin(web)
		l.resizedTo(web, "500m/500m 128Mi/128Mi of 500m 128Mi", 0)
		if diff := cmp.Diff(running, l.running()); diff != "" {
			t.Errorf("containers (-before +after):\n%s", diff)
		}
	})
}

// A disk that takes nothing puts a resize off.
func TestResizeOnAFullDisk(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		record := filepath.Join(l.cfg.Paths.Root, "tinylet", "allocations.new")
		if err := os.MkdirAll(filepath.Join(record, "full"), 0o755); err != nil { // a folder where the file has to be
			t.Fatal(err)
		}
		web = grown(web, "500m", "64Mi")
		l.ask(web)
		if got := l.has(web); got != "250m 256 64Mi" {
			t.Errorf("has %s", got)
		}
		if err := os.RemoveAll(record); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute)
		l.resizedTo(web, "500m/500m 64Mi/64Mi of 500m 64Mi", 0)
	})
}
