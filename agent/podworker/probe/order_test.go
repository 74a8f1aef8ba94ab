package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// TestAnyOrder observes pods in random states, and checks after each step that
// the queue, the runs in flight and the results are consistent.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inLab(t, func(l *lab) {
				random := rand.New(rand.NewPCG(seed, 1))
				for step := range 120 {
					l.anything(random, step)
					l.pass(time.Duration(random.IntN(4000)) * time.Millisecond)
					l.consistent()
				}
				l.exec.overlap = false // the pods share their commands
				for i := range 3 {
					l.RemovePod(types.UID(fmt.Sprint(i)))
				}
				l.pass(0)
				if len(l.pods) != 0 || len(l.queue) != 0 || l.exec.flying["s"]+l.exec.flying["l"]+l.exec.flying["r"] != 0 {
					t.Errorf("left: %d pods, %d checks, flights %v", len(l.pods), len(l.queue), l.exec.flying)
				}
			})
		})
	}
}

// anything does one random thing to one of three pods.
func (l *lab) anything(random *rand.Rand, step int) {
	uid := types.UID(fmt.Sprint(random.IntN(3)))
	p := podOf(func(c *v1.Container) {
		c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = execProbe("s", period(2)), execProbe("l", period(3)), execProbe("r", period(1))
	})
	p.UID = uid
	o := running(time.Now(), "web", fmt.Sprintf("%s-%d", uid, step/10))
	switch random.IntN(9) {
	case 0:
		l.RemovePod(uid)
	case 1:
		l.StopLivenessAndStartup(uid)
	case 2:
		l.Observe(p, &container.Observed{UID: uid})
	case 3:
		o.Containers[0].State = container.StateUnknown
		l.Observe(p, o)
	case 4, 5:
		command := []string{"s", "l", "r"}[random.IntN(3)]
		l.exec.answer(command, answer{code: int32(random.IntN(2)), took: time.Duration(random.IntN(1500)) * time.Millisecond, hang: random.IntN(8) == 0})
	default:
		l.Observe(p, o)
	}
}

// consistent checks what must hold at any time.
func (l *lab) consistent() {
	l.t.Helper()
	l.mu.Lock() // of the lab: Changed may come meanwhile
	defer l.mu.Unlock()
	l.Manager.mu.Lock()
	defer l.Manager.mu.Unlock()
	for i, c := range l.queue {
		if c.index != i || c.cancel != nil || !c.runs() || c.target.pod.containers[0].target != c.target {
			l.t.Fatalf("check %d of the queue: %+v", i, c)
		}
		if c.due.Before(time.Now()) {
			l.t.Fatalf("a check is late by %v", time.Since(c.due))
		}
	}
	for _, st := range l.pods {
		for _, pc := range st.containers {
			if pc.target == nil {
				continue
			}
			for _, c := range pc.target.checks {
				if waits := c.index >= 0; c.runs() && !waits && c.cancel == nil {
					l.t.Fatalf("a check neither waits nor flies: %+v", c)
				}
			}
			if r := pc.target.result; r.Ready && !r.Started || st.terminating && r.Failed != "" {
				l.t.Fatalf("result %+v", r)
			}
		}
	}
}

// recordedTargets are what an Actions was asked to probe.
type recordedTargets struct {
	mu   sync.Mutex
	seen []handler.Target
}

func (r *recordedTargets) Probe(_ context.Context, _ *v1.ProbeHandler, t handler.Target, _ time.Duration) (handler.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, t)
	return handler.Result{Status: handler.Success}, nil
}

// TestTarget checks what a probe is run against.
func TestTarget(t *testing.T) {
	cases := []struct {
		name    string
		host    bool
		hostIPs func() []string
		want    string
	}{
		{"in its own network", false, nil, "10.0.0.7"},
		{"on the host's network", true, func() []string { return []string{"192.0.2.1", "192.0.2.2"} }, "192.0.2.1"},
		{"on the host's network without address", true, func() []string { return nil }, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				targets := new(recordedTargets)
				l.Actions, l.HostIPs = targets, tc.hostIPs
				p := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r") })
				p.Spec.HostNetwork = tc.host
				l.start(p, "web", "c1")
				l.pass(time.Second)
				newer := p.DeepCopy()
				l.Observe(newer, running(l.begun, "web", "c1"))
				l.pass(10 * time.Second)
				if len(targets.seen) != 2 {
					t.Fatalf("%d runs", len(targets.seen))
				}
				if got := targets.seen[1]; got.ContainerID != "c1" || got.IP != tc.want || got.Container != &newer.Spec.Containers[0] {
					t.Errorf("run against %+v", got)
				}
			})
		})
	}
}
