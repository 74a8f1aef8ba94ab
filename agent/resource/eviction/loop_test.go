package eviction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

const mi = 1 << 20

// node is a fake node with a capacity of memory and disk, its usage, and a record of
// the actions of the loop.
type node struct {
	t  *testing.T
	mu sync.Mutex // guards what follows

	memory, disk int64 // capacity in MiB
	pods         []*user
	dead, images int64 // MiB on the disk that can be spared
	spareFails   bool
	killFails    bool
	ends         time.Duration // how long a pod takes to end
	looks, lists int
	did          []string
	log          bytes.Buffer
	protects     func(rehearse func()) // Config.ProtectPages; may be nil
	tried        []string              // messages of rehearsed evictions
	loop         *loop
	evicts       func() // is called first when a pod is to go; nil is not
}

// user is a pod that uses resources.
type user struct {
	name         string
	memory, disk int64 // MiB
	critical     bool
	ending       bool
}

func (n *node) used() (memory, disk int64) {
	disk = n.dead + n.images
	for _, p := range n.pods {
		memory, disk = memory+p.memory, disk+p.disk
	}
	return memory, disk
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.did = append(n.did, fmt.Sprintf(format, args...))
}

// done returns the actions of the loop so far.
func (n *node) done() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.did)
}

func (n *node) looked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

func (n *node) observe() (o evictionapi.Observations) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	memory, disk := n.used()
	o[evictionapi.MemoryAvailable] = evictionapi.Observation{Available: (n.memory - memory) * mi, Capacity: n.memory * mi, Time: time.Now(), Known: true}
	o[evictionapi.NodeFsAvailable] = evictionapi.Observation{Available: (n.disk - disk) * mi, Capacity: n.disk * mi, Time: time.Now(), Known: true}
	return o
}

func (n *node) list(context.Context, evictionapi.Signal) (out []policy.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	for _, u := range n.pods {
		if u.ending {
			continue
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: u.name, UID: types.UID(u.name)}}
		if u.critical {
			priority := int32(2000001000)
			p.Spec.Priority = &priority
		}
		p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi")}}}}
		out = append(out, policy.Pod{Pod: p, Known: true, Memory: policy.Measured(u.memory * mi), Ephemeral: policy.Measured(u.disk * mi),
			Containers: []policy.Container{{Name: "c", Memory: policy.Measured(u.memory * mi), Rootfs: policy.Disk{Bytes: policy.Measured(u.disk * mi)}, Logs: policy.Disk{Bytes: policy.Measured(0)}}}})
	}
	return out
}

func (n *node) Running() []pod.Entry                 { return nil }
func (n *node) Active() []pod.Entry                  { return nil }
func (n *node) NotifyChanges(chan<- struct{}) func() { return func() {} }

func (n *node) Evict(p *v1.Pod, e policy.Eviction) <-chan struct{} {
	n.note("evict %s in %v", p.Name, e.Grace)
	if n.evicts != nil {
		n.evicts()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.pods, func(u *user) bool { return u.name == p.Name })
	if i < 0 || n.pods[i].ending {
		return nil
	}
	if !strings.Contains(e.Message, "The node was low on resource: ") {
		n.t.Errorf("%s is told %q", p.Name, e.Message)
	}
	n.pods[i].ending = true
	gone := make(chan struct{})
	go func() {
		time.Sleep(n.ends)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.pods = slices.DeleteFunc(n.pods, func(u *user) bool { return u.name == p.Name })
		close(gone)
	}()
	return gone
}

func (n *node) Rehearse(e policy.Eviction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tried = append(n.tried, e.Message)
}

// Kill releases the resources of a pod. It reports the termination as late as the
// runtime would.
func (n *node) Kill(p *v1.Pod) error {
	n.note("kill %s", p.Name)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.killFails {
		return errors.New("read-only file system")
	}
	for _, u := range n.pods {
		if u.name == p.Name {
			u.memory = 0
		}
	}
	return nil
}

func (n *node) reclaim(_ context.Context, r policy.Reclaim) error {
	n.note("spare %s", r)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.spareFails:
		return errors.New("the runtime does not answer")
	case r == policy.DeadContainers:
		n.dead = 0
	default:
		n.images = 0
	}
	return nil
}

// Write gets the lines of the recorder's log, and notes the events of met thresholds.
func (n *node) Write(line []byte) (int, error) {
	if _, what, ok := strings.Cut(string(line), policy.MessageThresholdMet); ok {
		what, _, _ = strings.Cut(what, `"`)
		n.note("short of %s", what)
	}
	return len(line), nil
}

// run runs the loop while play runs.
func (n *node) run(t *testing.T, config kubelet.KubeletConfiguration, play func()) {
	t.Helper()
	thresholds, err := evictionapi.Parse(&config)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		n.t = t
		thresholds, _ := policy.OneFs.Thresholds(thresholds)
		m := New(Config{
			Transition: 5 * time.Minute, MaxGrace: time.Minute, Pods: n, Reclaim: n.reclaim, ProtectPages: n.protects,
			OnConditionsChanged: func() { n.note("under %s", n.loop.Conditions()) },
			Events:              event.NewRecorder(slog.New(slog.NewTextHandler(n, nil))),
			Log:                 slog.New(slog.NewTextHandler(&n.log, nil)),
		})
		n.loop = newLoop(m, thresholds, policy.OneFs, n.observe)
		n.loop.evictable = n.list
		ctx, cancel := context.WithCancelCause(t.Context())
		end := errors.New("the end")
		done := make(chan error)
		go func() { done <- n.loop.run(ctx) }()
		synctest.Wait()
		play()
		cancel(end)
		if err := <-done; !errors.Is(err, end) {
			t.Errorf("Run: %v", err)
		}
		time.Sleep(time.Hour) // what ends, ends
	})
}

var hard = kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "16Mi", "nodefs.available": "10%"}}

// While no threshold is met, the loop checks once at the start and then only at
// triggers.
func TestQuiet(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 100}}}
	n.run(t, hard, func() {
		time.Sleep(24 * time.Hour)
		if n.looked() != 1 {
			t.Errorf("%d looks in a quiet day", n.looked())
		}
		for range 3 {
			n.loop.Trigger()
		}
		time.Sleep(time.Hour)
	})
	if n.looked() < 3 || n.looked() > 4 || len(n.done()) > 0 {
		t.Errorf("%d looks, did %v", n.looked(), n.done())
	}
}

// A decision is rehearsed once, as soon as there is a pod and memory is available,
// without an effect on the pod.
func TestRehearsal(t *testing.T) {
	n := &node{memory: 256, disk: 1000}
	kept := 0
	n.protects = func(rehearse func()) { kept++; rehearse() }
	n.run(t, hard, func() {
		for range 3 {
			n.loop.Trigger()
			time.Sleep(time.Minute)
		}
		if kept != 0 {
			t.Errorf("a rehearsal without a pod")
		}
		n.mu.Lock()
		n.pods, n.lists = []*user{{name: "a", memory: 100}}, 0
		n.mu.Unlock()
		for range 3 {
			n.loop.Trigger()
			time.Sleep(time.Minute)
		}
	})
	if kept != 1 || n.lists != 2 || len(n.done()) > 0 {
		t.Errorf("%d rehearsals, the pods were listed %d times, did %v", kept, n.lists, n.done())
	}
	if len(n.tried) != 1 || !strings.Contains(n.tried[0], "memory") {
		t.Errorf("evictions that were tried: %q", n.tried)
	}
}

// Nothing is rehearsed while a soft threshold is met, also within its grace period.
func TestNoRehearsalUnderPressure(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 200}}}
	n.protects = func(rehearse func()) { rehearse() }
	config := kubelet.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "64Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "90s"}}
	n.run(t, config, func() {
		if len(n.tried) != 0 {
			t.Error("rehearsed while a threshold is met")
		}
		n.mu.Lock()
		n.pods[0].memory = 100
		n.mu.Unlock()
		n.loop.Trigger()
		time.Sleep(time.Second)
	})
	if len(n.tried) != 1 {
		t.Errorf("%d rehearsals", len(n.tried))
	}
}

// The pods that exceed their requests are evicted, the largest first, one at a time,
// until no threshold is met. The condition stays for its transition period.
func TestMemory(t *testing.T) {
	n := &node{memory: 256, disk: 1000, ends: 2 * time.Second, pods: []*user{
		{name: "small", memory: 5}, {name: "critical", memory: 120, critical: true}, {name: "hog", memory: 60}, {name: "leaker", memory: 90},
	}}
	n.run(t, hard, func() {
		n.loop.Trigger()
		time.Sleep(time.Minute)
		if !n.loop.Conditions().Memory {
			t.Error("the node is not under memory pressure")
		}
		time.Sleep(time.Hour)
		if n.loop.Conditions().Memory {
			t.Error("the node is still under memory pressure")
		}
	})
	want := []string{"evict leaker in 1s", "under [MemoryPressure]", "short of memory", "under []"}
	if d := cmp.Diff(want, n.done()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// While a threshold is met the next pod is evicted, but not before the previous one
// is gone or overdue.
func TestOneAfterTheOther(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends time.Duration
		want time.Duration // between two evictions
	}{
		{"they end", 3 * time.Second, 3 * time.Second},
		{"they hang", time.Hour, podCleanupTimeout + time.Second}, // and a grace
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &node{memory: 100, disk: 1000, ends: tc.ends, killFails: true, pods: []*user{{name: "a", memory: 60}, {name: "b", memory: 61}, {name: "c", memory: 62}}}
			n.run(t, hard, func() {
				begun := time.Now()
				for range 3 {
					n.loop.Trigger()
					synctest.Wait()
				}
				for len(evictions(n)) < 2 && time.Since(begun) < 10*time.Minute {
					time.Sleep(time.Second)
				}
				if took := time.Since(begun).Truncate(time.Second); took < tc.want || took > tc.want+2*time.Second {
					t.Errorf("the second went after %v", took)
				}
			})
			if did := evictions(n); !slices.Equal(did[:min(len(did), 2)], []string{"evict c in 1s", "evict b in 1s"}) {
				t.Errorf("did %q", n.done())
			}
			if failed := strings.Contains(n.log.String(), "read-only file system"); failed != (tc.ends > podCleanupTimeout) {
				t.Errorf("the log: %s", n.log.String())
			}
		})
	}
}

// A pod that the runtime does not terminate is killed once, some time after its grace
// period, and no other pod is evicted in its place. A pod that terminates in time is
// left to the runtime.
func TestRuntimeIsLate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config kubelet.KubeletConfiguration
		ends   time.Duration
		want   []string
	}{
		{"late", hard, 20 * time.Second, []string{"evict a in 1s", "kill a"}},
		{"never", hard, time.Hour, []string{"evict a in 1s", "kill a"}},
		{"in time", hard, 5 * time.Second, []string{"evict a in 1s"}},
		{
			"soft", kubelet.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "16Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "10s"}},
			62 * time.Second, []string{"evict a in 1m0s"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &node{memory: 100, disk: 1000, ends: tc.ends, pods: []*user{{name: "a", memory: 60}, {name: "b", memory: 40}}}
			n.run(t, tc.config, func() { time.Sleep(10 * time.Minute) })
			did := slices.DeleteFunc(n.done(), func(what string) bool {
				return !strings.HasPrefix(what, "evict") && !strings.HasPrefix(what, "kill")
			})
			if d := cmp.Diff(tc.want, did); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// For a full disk, dead containers and unused images are removed first. A pod is
// evicted only if that fails or is not sufficient.
func TestDisk(t *testing.T) {
	spared := []string{"under [DiskPressure]", "short of ephemeral-storage", "spare dead containers", "spare unused images"}
	for _, tc := range []struct {
		name         string
		dead, images int64
		fails        bool
		want         []string
	}{
		{"enough", 50, 200, false, spared},
		{"not enough", 10, 0, false, append(slices.Clone(spared), "evict big in 1s")},
		{"failed", 50, 200, true, append(slices.Clone(spared), "evict big in 1s")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &node{memory: 256, disk: 1000, dead: tc.dead, images: tc.images, spareFails: tc.fails,
				pods: []*user{{name: "small", disk: 20}, {name: "big", disk: 980 - 20 - tc.dead - tc.images}}}
			n.run(t, hard, func() {
				n.loop.Trigger()
				time.Sleep(5 * time.Second)
			})
			if d := cmp.Diff(tc.want, n.done()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if strings.Contains(n.log.String(), "cannot reclaim") != tc.fails {
				t.Errorf("the log: %s", n.log.String())
			}
		})
	}
}

// A soft threshold is acted on at the end of its grace period, without a trigger.
func TestSoft(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 200}}}
	config := kubelet.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "64Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "90s"}}
	n.run(t, config, func() {
		n.loop.Trigger()
		time.Sleep(89 * time.Second)
		if len(n.done()) != 1 {
			t.Errorf("before its grace is over: %q", n.done())
		}
		time.Sleep(2 * time.Second)
	})
	want := []string{"under [MemoryPressure]", "evict a in 1m0s", "short of memory"}
	if d := cmp.Diff(want, n.done()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// No other pod is evicted during the grace period of an evicted pod, even if that is
// longer than the wait for a hanging pod. A hard threshold does not wait for it.
func TestSoftLeavesTime(t *testing.T) {
	for _, tc := range []struct {
		name string
		more int64 // MiB that the second takes meanwhile
		want []string
	}{
		{"enough", 0, []string{"evict a in 1m0s"}},
		{"the hard threshold", 40, []string{"evict a in 1m0s", "evict b in 1s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &node{memory: 256, disk: 1000, ends: 55 * time.Second, pods: []*user{{name: "a", memory: 150}, {name: "b", memory: 60}}}
			config := kubelet.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "64Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "10s"}, EvictionHard: hard.EvictionHard}
			n.run(t, config, func() {
				time.Sleep(40 * time.Second)
				n.mu.Lock()
				n.pods[1].memory += tc.more
				n.mu.Unlock()
				for range 3 {
					n.loop.Trigger()
					time.Sleep(300 * time.Millisecond)
				}
				if did := evictions(n); !slices.Equal(did, tc.want) {
					t.Errorf("before the first has had its time: %q", did)
				}
				time.Sleep(time.Minute)
				if did := evictions(n); !slices.Equal(did, tc.want) {
					t.Errorf("in the end: %q", did)
				}
			})
		})
	}
}

func evictions(n *node) (did []string) {
	for _, what := range n.done() {
		if strings.HasPrefix(what, "evict") {
			did = append(did, what)
		}
	}
	return did
}

// Triggers within the minimum interval cause only one check.
func TestPace(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 100}}}
	n.run(t, hard, func() {
		time.Sleep(time.Minute)
		before := n.looked()
		for range 1000 {
			select {
			case n.loop.trigger <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if looks := n.looked() - before; looks < 5 || looks > 7 {
			t.Errorf("%d looks for a second of signs", looks)
		}
	})
}

// A change of pods leads to a check after podsDelay, with all that change until then. A
// trigger does not wait for it, and its check handles the change.
func TestChangesOfPods(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 100}}}
	n.run(t, hard, func() {
		time.Sleep(time.Minute)
		before := n.looked()
		for range 12 {
			n.loop.podsChanged.Set()
			time.Sleep(podsDelay / 20)
		}
		if looks := n.looked() - before; looks != 0 {
			t.Errorf("%d looks while a pod starts", looks)
		}
		time.Sleep(podsDelay / 2)
		if looks := n.looked() - before; looks != 1 {
			t.Errorf("%d looks for a pod that has started", looks)
		}
		time.Sleep(time.Hour)
		if looks := n.looked() - before; looks != 1 {
			t.Errorf("%d looks afterwards", looks)
		}
		n.loop.podsChanged.Set()
		synctest.Wait()
		n.loop.Trigger()
		time.Sleep(minInterval)
		if looks := n.looked() - before; looks != 2 {
			t.Errorf("%d looks: the trigger waits for the pods", looks)
		}
		time.Sleep(time.Hour)
		if looks := n.looked() - before; looks != 2 {
			t.Errorf("%d looks: the change of pods is handled twice", looks)
		}
	})
}

// The log has the time from the trigger to the decision.
func TestReactionIsTold(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 100}}}
	n.run(t, hard, func() {
		time.Sleep(time.Minute)
		n.loop.Trigger()
		time.Sleep(50 * time.Millisecond)
		n.mu.Lock()
		n.pods[0].memory = 250
		n.mu.Unlock()
		n.loop.Trigger()
		time.Sleep(time.Second)
	})
	if !strings.Contains(n.log.String(), "sinceTrigger=150ms") {
		t.Errorf("the log: %s", n.log.String())
	}
}

// An eviction after the wait for another pod logs no time since a trigger: a trigger
// during the wait is not its cause.
func TestReactionOfTheSecond(t *testing.T) {
	n := &node{memory: 256, disk: 1000, ends: 2500 * time.Millisecond, pods: []*user{{name: "a", memory: 260}, {name: "b", memory: 20}, {name: "c", memory: 250}}}
	n.run(t, hard, func() {
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			n.loop.Trigger()
		}
		time.Sleep(time.Minute)
	})
	if log := n.log.String(); strings.Count(log, "evicted pod") != 2 || strings.Contains(log, "sinceTrigger") {
		t.Errorf("the log: %s", log)
	}
}

// A pod is evicted before anything is logged, because logging takes long without
// memory. The node condition is visible to admission before the eviction.
func TestEndsBeforeItTells(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 250}}}
	var told, under bool
	n.evicts = func() { told, under = n.log.Len() > 0, n.loop.Conditions().Memory }
	n.run(t, hard, func() { time.Sleep(time.Minute) })
	if log := n.log.String(); told || !under || !strings.Contains(log, "threshold met") || !strings.Contains(log, "evicted pod") {
		t.Errorf("told before it %v, under pressure %v, the log: %s", told, under, log)
	}
}

// While no pod can be evicted, triggers do not repeat attempts or log messages.
func TestSignsWhileNobodyCanGo(t *testing.T) {
	n := &node{memory: 100, disk: 100, dead: 95, pods: []*user{{name: "critical", memory: 95, critical: true}}, spareFails: true}
	n.run(t, hard, func() {
		for range 60 {
			n.loop.Trigger()
			time.Sleep(time.Second)
		}
	})
	if did := len(n.done()); did > 10 {
		t.Errorf("did %d things: %q", did, n.done())
	}
	if lines := strings.Count(n.log.String(), "\n"); lines > 3 {
		t.Errorf("%d lines in the log: %s", lines, n.log.String())
	}
}

// Each time the threshold is met again it is logged, even if its condition has held
// in between.
func TestShortAgain(t *testing.T) {
	n := &node{memory: 256, disk: 1000, pods: []*user{{name: "a", memory: 100}, {name: "b", memory: 150}}}
	n.run(t, hard, func() {
		time.Sleep(time.Minute)
		for range 2 {
			n.mu.Lock()
			n.pods = append(n.pods, &user{name: "c", memory: 152})
			n.mu.Unlock()
			n.loop.Trigger()
			time.Sleep(time.Minute)
		}
	})
	if told := strings.Count(n.log.String(), "eviction threshold met"); told != 3 {
		t.Errorf("told %d times: %s", told, n.log.String())
	}
}

// If only critical pods run, that is logged, and attempts are not repeated quickly.
func TestNobodyCanGo(t *testing.T) {
	n := &node{memory: 100, disk: 1000, pods: []*user{{name: "critical", memory: 95, critical: true}}}
	n.run(t, hard, func() { time.Sleep(time.Minute) })
	if n.looked() > 8 {
		t.Errorf("%d looks in a minute", n.looked())
	}
	if !strings.Contains(n.log.String(), "no pod can be evicted") {
		t.Errorf("the log: %s", n.log.String())
	}
}
