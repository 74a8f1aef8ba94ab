package agent

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// TestEndIsKeptBeforeItIsTold is a power cut between the two: what the API
// server has as ended must not run again on a board that starts without it.
func TestEndIsKeptBeforeItIsTold(t *testing.T) {
	for _, row := range []struct {
		name, policy, script string
		deadline             int64
		want                 v1.PodPhase
	}{
		{"succeeds", "OnFailure", "sleep 5", 0, v1.PodSucceeded},
		{"fails", "Never", "sleep 5; exit 1", 0, v1.PodFailed},
		{"meets its deadline", "Always", "sleep 100000", 20, v1.PodFailed},
		{"is refused", "Always", "sleep 100000", 0, v1.PodFailed},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				dir := t.TempDir()
				l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = dir+"/none.conf", dir, dir
				l.start()
				p := shell(t, "once", row.policy, row.script)
				delete(p.Annotations, pod.AnnotationSource)
				l.agent.syncer.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, nil }
				if row.deadline > 0 {
					p.Spec.ActiveDeadlineSeconds = &row.deadline
				}
				if row.name == "is refused" {
					p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var told v1.PodPhase
				l.done.Go(func() {
					for {
						for _, e := range l.agent.reportable() {
							if phase := e.Status.Phase; phase == v1.PodSucceeded || phase == v1.PodFailed {
								told = phase
								if s, ok := l.agent.cluster.journal.Ended(p.UID); !ok || s.Phase != phase {
									t.Errorf("the API server would hear that the pod is %s, and the journal has %v", phase, s)
								}
							}
						}
						select {
						case <-l.agent.statuses.Changed():
						case <-ctx.Done():
							return
						}
					}
				})
				l.done.Go(func() { l.agent.mux.Set(ctx, pod.SourceAPI, source.Wanted{Pods: []*v1.Pod{p}}) })
				l.settle(2 * time.Minute)
				for _, e := range l.agent.reportable() {
					told = e.Status.Phase
				}
				if told != row.want {
					t.Errorf("the API server would hear %q, want %s", told, row.want)
				}
				stop()
				l.kill()
				if err := l.agent.cluster.journal.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
