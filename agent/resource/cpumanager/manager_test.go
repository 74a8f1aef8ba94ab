package cpumanager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// running runs a test while the Manager's Run runs, in virtual time.
func running(t *testing.T, b *board, test func(t *testing.T, m *Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := b.start()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		synctest.Wait()
		test(t, m)
		cancel()
		wg.Wait()
	})
}

func (b *board) allocate(m *Manager, p *v1.Pod) {
	b.t.Helper()
	if err := m.Allocate(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) want(want map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.where()); diff != "" {
		b.t.Errorf("cpuset.cpus (-want +got):\n%s", diff)
	}
}

func TestSharedContainersMakeRoom(t *testing.T) {
	b := newBoard(t)
	running(t, b, func(t *testing.T, m *Manager) {
		shared, alone := b.wants("shared", "500m"), b.wants("alone", "2")
		b.allocate(m, shared)
		b.runs(m, shared)
		synctest.Wait()
		b.want(map[string]string{"shared-a": "0-3"})

		b.allocate(m, alone)
		if !m.IgnoresQuota(alone.UID, "a") || !m.IgnoresQuota(alone.UID, "") || m.IgnoresQuota(shared.UID, "a") || m.IgnoresQuota(shared.UID, "") {
			t.Error("a quota holds for the wrong ones")
		}
		synctest.Wait()
		b.want(map[string]string{"shared-a": "0,3"}) // before the other one is made
		b.runs(m, alone)
		synctest.Wait()
		b.want(map[string]string{"shared-a": "0,3", "alone-a": "1-2"})

		if err := m.Allocate(t.Context(), b.wants("more", "2")); err == nil {
			t.Error("two CPUs of one that is left")
		} else if r := new(policy.AdmissionError); !errors.As(err, &r) || r.Reason != policy.ReasonUnexpected || !strings.HasPrefix(r.Message, "Allocate failed due to container \"a\"") || !strings.HasSuffix(r.Message, ", which is unexpected") {
			t.Errorf("the refusal: %v", err)
		}
		updates := b.updated()
		b.changed()
		b.allocate(m, alone)
		synctest.Wait()
		if b.updated() != updates {
			t.Errorf("%d updates for nothing", b.updated()-updates)
		}
		b.ends(m, alone)
		synctest.Wait()
		b.want(map[string]string{"shared-a": "0-3"})
	})
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	b := newBoard(t)
	running(t, b, func(t *testing.T, m *Manager) {
		shared, alone := b.wants("shared", "500m"), b.wants("alone", "1")
		b.allocate(m, alone) // the file is read with the first that asks
		b.allocate(m, shared)
		b.runs(m, shared)
		synctest.Wait()
		b.breaks(errors.New("crun is broken"))
		b.ends(m, alone)
		b.changed()
		synctest.Wait()
		if b.updated() != 1 {
			t.Errorf("%d updates before it is time to try again", b.updated())
		}
		for range 5 { // nothing of it brings the next try on
			b.changed()
			synctest.Wait()
		}
		if b.updated() != 1 {
			t.Errorf("%d updates before it is time to try again", b.updated())
		}
		time.Sleep(10 * time.Minute)
		if b.updated() < 10 || b.updated() > 20 {
			t.Errorf("%d updates in ten minutes", b.updated())
		}
		b.breaks(nil)
		time.Sleep(2 * retryLater)
		b.want(map[string]string{"shared-a": "0-3"})
		updates := b.updated()
		time.Sleep(time.Hour)
		if b.updated() != updates {
			t.Error("it does not come to rest")
		}
	})
}

func TestTheCgroupIsWrittenWhereTheRuntimeFails(t *testing.T) {
	b := newBoard(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "cgroup.controllers"), "cpu cpuset\n")
	group := filepath.Join(root, "kubepods", "podshared", "shared-a", "cpuset.cpus")
	write(t, group, "0-3\n")
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	b.tree = tree
	running(t, b, func(t *testing.T, m *Manager) {
		shared, alone := b.wants("shared", "500m"), b.wants("alone", "1")
		b.allocate(m, shared)
		b.runs(m, shared)
		synctest.Wait()
		b.breaks(errors.New("memory.swap.max: no such file"))
		b.allocate(m, alone)
		synctest.Wait()
		if got, err := os.ReadFile(group); string(got) != "0,2-3" || err != nil {
			t.Errorf("cpuset.cpus is %q, %v", got, err)
		}
		b.changed()
		time.Sleep(time.Hour)
		if b.updated() != 1 {
			t.Errorf("%d updates", b.updated())
		}
	})
}

// Without swap accounting a container may have been resized directly in its cgroup,
// and the runtime's record is older. Then its cpuset is also written directly: an
// update would make the runtime write its whole record.
func TestAMoveTakesNoResizeBack(t *testing.T) {
	b := newBoard(t)
	b.noSwap = true
	root := t.TempDir()
	write(t, filepath.Join(root, "cgroup.controllers"), "cpu cpuset memory\n")
	group := filepath.Join(root, "kubepods", "podshared", "shared-a")
	write(t, filepath.Join(group, "cpuset.cpus"), "0-3\n")
	write(t, filepath.Join(group, "memory.max"), "67108864")
	tree, err := cgroups.Open(root)
	must(t, err)
	b.tree, b.broken = tree, errors.New("open memory.swap.max: no such file")
	b.update = func(string) { write(t, filepath.Join(group, "memory.max"), "33554432") } // as it was made
	running(t, b, func(t *testing.T, m *Manager) {
		shared, alone := b.wants("shared", "500m"), b.wants("alone", "1")
		b.allocate(m, shared)
		b.runs(m, shared)
		b.allocate(m, alone)
		synctest.Wait()
		for file, want := range map[string]string{"cpuset.cpus": "0,2-3", "memory.max": "67108864"} {
			if got, err := os.ReadFile(filepath.Join(group, file)); string(got) != want || err != nil {
				t.Errorf("%s is %q, %v", file, got, err)
			}
		}
	})
}

// A running container that no status shows yet is updated like others.
func TestStartedAndNotTold(t *testing.T) {
	b := newBoard(t)
	running(t, b, func(t *testing.T, m *Manager) {
		slow, alone := b.wants("slow", "500m"), b.wants("alone", "1")
		b.allocate(m, slow)
		b.started(slow, "a", "slow-a", "0-3")
		synctest.Wait()
		b.allocate(m, alone)
		synctest.Wait()
		b.want(map[string]string{"slow-a": "0,2-3"})
	})
}

func TestAnAgentGoesOn(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, file string){
		"as it was":   func(*testing.T, string) {},
		"file gone":   func(t *testing.T, file string) { must(t, os.Remove(file)) },
		"file torn":   func(t *testing.T, file string) { must(t, os.Truncate(file, 20)) },
		"file empty":  func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"a kubelet's": func(t *testing.T, file string) { write(t, file, `{"policyName":"static","defaultCpuSet":"0-3"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			shared, alone, waits := b.wants("shared", "500m"), b.wants("alone", "2"), b.wants("waits", "1")
			running(t, b, func(t *testing.T, m *Manager) {
				b.allocate(m, waits)
				b.allocate(m, alone)
				b.allocate(m, shared)
				b.runs(m, alone)
				b.runs(m, shared)
				synctest.Wait()
			})
			b.want(map[string]string{"shared-a": "0", "alone-a": "2-3"})
			damage(t, b.file())
			running(t, b, func(t *testing.T, m *Manager) {
				b.allocate(m, alone)
				b.allocate(m, waits)
				b.changed()
				synctest.Wait()
				if got := m.CPUSet(waits.UID, "a"); got != "1" {
					t.Errorf("the pod that waited has %s", got)
				}
			})
			b.want(map[string]string{"shared-a": "0", "alone-a": "2-3"})
			broken := name != "as it was" && name != "file gone"
			if told := len(b.events) == 1 && strings.HasPrefix(b.events[0], reasonState); told != broken {
				t.Errorf("events: %q", b.events)
			}
			data, err := os.ReadFile(b.file())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policy.Decode(data); err != nil {
				t.Errorf("the file after that: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNothingRunsThatIsNotOnTheDisk(t *testing.T) {
	b := newBoard(t)
	b.allocate(b.start(), b.wants("shared", "500m")) // makes the folder
	m := b.start()
	b.allocate(m, b.pods[0].Pod)
	alone := b.wants("alone", "1")
	must(t, os.RemoveAll(filepath.Dir(b.file())))
	write(t, filepath.Dir(b.file()), "not a folder")
	for range 2 {
		if err := m.Allocate(t.Context(), alone); err == nil {
			t.Fatal("CPUs were given that are on no disk")
		}
	}
	must(t, os.Remove(filepath.Dir(b.file())))
	b.allocate(m, alone)
	data, err := os.ReadFile(b.file())
	must(t, err)
	if s, err := policy.Decode(data); err != nil || s.Pods["alone"]["a"].String() != "1" {
		t.Errorf("on the disk: %+v, %v", s, err)
	}
}

func TestTheRuntimeIsAway(t *testing.T) {
	b := newBoard(t)
	b.away = container.ErrUnavailable
	m := b.start()
	p := b.wants("alone", "1")
	if err := m.Allocate(t.Context(), p); !errors.Is(err, container.ErrUnavailable) {
		t.Fatalf("who runs where was not asked: %v", err)
	}
	if got := m.CPUSet(p.UID, "a"); got != "" {
		t.Errorf("it has %s", got)
	}
	b.away = nil
	b.allocate(m, p)
	if got := m.CPUSet(p.UID, "a"); got != "1" {
		t.Errorf("it has %s", got)
	}
}

func TestMetrics(t *testing.T) {
	b := newBoard(t)
	m := b.start()
	b.allocate(m, b.wants("alone", "2"))
	if m.Allocate(t.Context(), b.wants("more", "2")) == nil {
		t.Fatal("four of three")
	}
	var out strings.Builder
	s := metrics.NewStream(&out)
	m.WriteMetrics(s)
	must(t, s.Flush())
	for _, line := range []string{
		"kubelet_cpu_manager_pinning_requests_total 2\n", "kubelet_cpu_manager_pinning_errors_total 1\n",
		"kubelet_cpu_manager_shared_pool_size_millicores 1000\n", "kubelet_cpu_manager_exclusive_cpu_allocation_count 2\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
}
