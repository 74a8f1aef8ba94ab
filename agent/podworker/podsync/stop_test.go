package podsync

import (
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// Every container gets at least two seconds between the stop signal and SIGKILL.
func TestGracePeriodOfZero(t *testing.T) {
	for name, stop := range map[string]func(b *bench, id string) error{
		"termination": func(b *bench, _ string) error {
			p := podOn(nil)
			return b.Terminate(b.t.Context(), pod.RefOf(p), p, 0)
		},
		"kill of one container": func(b *bench, id string) error {
			p := podOn(nil)
			return b.stopper(pod.RefOf(p), nil, b.stateOf(p.UID), noLimit).kill(b.t.Context(), []plan.Kill{{ID: id, Name: "app"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, nil, func(b *bench) {
				id := b.runs(podOn(nil))
				got := time.Duration(-1)
				b.rt.stopping = func(_ string, grace time.Duration) { got = grace }
				if err := stop(b, id); err != nil || got != pod.MinGracePeriod {
					t.Errorf("grace period of the stop signal: %v, %v, want %v", got, err, pod.MinGracePeriod)
				}
			})
		})
	}
}
