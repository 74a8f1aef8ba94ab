package podworker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// TestStatesOnlyMoveForward walks every order in which the fields of a life
// can become true and checks that the derived state never goes back.
func TestStatesOnlyMoveForward(t *testing.T) {
	type fact struct {
		name  string
		ready func(*podSyncStatus) bool // may it become true now
		set   func(*podSyncStatus)
	}
	now := time.Unix(1_000, 0)
	facts := []fact{
		{"submitted", func(l *podSyncStatus) bool { return l.pod == nil && !l.removed }, func(l *podSyncStatus) { l.pod = &v1.Pod{} }},
		{"begun", func(l *podSyncStatus) bool { return l.pod != nil && !l.syncStarted && !l.terminating }, func(l *podSyncStatus) { l.syncStarted = true }},
		{"stopping", func(l *podSyncStatus) bool { return !l.terminating }, func(l *podSyncStatus) { l.terminate(now, time.Second) }},
		{"removed", func(l *podSyncStatus) bool { return !l.removed }, func(l *podSyncStatus) { l.removed = true; l.terminate(now, 0) }},
		{"stopped", func(l *podSyncStatus) bool { return l.terminating && !l.stopped }, func(l *podSyncStatus) { l.stopped = true }},
		{"finished", func(l *podSyncStatus) bool { return l.stopped && !l.finished }, func(l *podSyncStatus) { l.finished = true }},
	}
	seen := map[[2]State]bool{}
	var walk func(l podSyncStatus, path string)
	walk = func(l podSyncStatus, path string) {
		for _, f := range facts {
			if !f.ready(&l) {
				continue
			}
			next := l
			f.set(&next)
			from, to := l.state(), next.state()
			if to < from {
				t.Errorf("%s %s: %v went back to %v", path, f.name, from, to)
			}
			seen[[2]State{from, to}] = true
			walk(next, path+" "+f.name)
		}
	}
	walk(newPodSyncStatus(pod.Ref{UID: "u"}), "new")
	for _, want := range [][2]State{
		{Adopted, Waiting}, {Adopted, Terminating}, {Waiting, Syncing}, {Waiting, Terminating},
		{Syncing, Terminating}, {Terminating, Terminated},
	} {
		if !seen[want] {
			t.Errorf("no path moves from %v to %v", want[0], want[1])
		}
		delete(seen, want)
	}
	for pair := range seen {
		if pair[0] != pair[1] {
			t.Errorf("a path moves from %v to %v, which the drawing does not have", pair[0], pair[1])
		}
	}
}

func TestRemainingGrace(t *testing.T) {
	t0 := time.Unix(1_000, 0)
	for _, tc := range []struct {
		name         string
		asked        []time.Duration // one second apart
		after        time.Duration   // when it is read
		want         time.Duration
		wantShorter  bool
		wantDeadline time.Duration
	}{
		{"whole", []time.Duration{30 * time.Second}, 0, 30 * time.Second, true, 30 * time.Second},
		{"part", []time.Duration{30 * time.Second}, 12 * time.Second, 18 * time.Second, true, 30 * time.Second},
		{"over leaves a second", []time.Duration{30 * time.Second}, time.Hour, time.Second, true, 30 * time.Second},
		{"clock went back", []time.Duration{30 * time.Second}, -5 * time.Second, 35 * time.Second, true, 30 * time.Second},
		{"none", []time.Duration{0}, 0, 0, true, 0},
		{"negative is none", []time.Duration{-5}, 0, 0, true, 0},
		{"longer is ignored", []time.Duration{10 * time.Second, time.Hour}, 0, 10 * time.Second, false, 10 * time.Second},
		{"shorter counts", []time.Duration{30 * time.Second, 5 * time.Second}, time.Second, 5 * time.Second, true, 6 * time.Second},
		{"shorter but later is no change", []time.Duration{3 * time.Second, 2500 * time.Millisecond}, 0, 3 * time.Second, false, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newPodSyncStatus(pod.Ref{})
			changed := false
			for i, grace := range tc.asked {
				changed = l.terminate(t0.Add(time.Duration(i)*time.Second), grace)
			}
			if changed != tc.wantShorter {
				t.Errorf("the last call changed something: %v, want %v", changed, tc.wantShorter)
			}
			if got := l.deadline.Sub(t0); got != tc.wantDeadline {
				t.Errorf("deadline %v, want %v", got, tc.wantDeadline)
			}
			if got := l.remaining(t0.Add(tc.after)); got != tc.want {
				t.Errorf("remaining %v, want %v", got, tc.want)
			}
		})
	}
}
