package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// TestReadyWithoutServerAndRuntime is a board that starts with neither: it is
// ready when the sync loop has the pods of the journal, and a watchdog finds
// nothing that a restart would cure.
func TestReadyWithoutServerAndRuntime(t *testing.T) {
	for name, fault := range map[string]func(l *lab){"stopped": func(l *lab) { l.runtime.Stop() }, "hung": func(l *lab) { l.runtime.Hang() }} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				dir := t.TempDir()
				l.join(dir)
				p := shell(t, "web", "Always", "sleep 100000")
				delete(p.Annotations, pod.AnnotationSource)
				l.done.Go(func() { l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
				l.settle(time.Minute)
				l.leave()

				fault(l)
				l.join(dir)
				done := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { done <- l.agent.ready(ctx) }()
				l.settle(time.Hour)
				if len(done) > 0 {
					t.Error("ready before the journal was handed over")
				}
				for _, task := range l.agent.podTasks() {
					if task.Name == "source-api" {
						l.done.Go(func() { _ = task.Run(ctx) })
					}
				}
				synctest.Wait()
				if len(done) != 1 || <-done != nil {
					t.Error("not ready with the pods of the journal")
				}
				if got := l.agent.statuses.Summary(); got != "Pods: 1 pending" {
					t.Errorf("the status is %q", got)
				}
				l.settle(time.Hour)
				if err := health.Run(ctx, time.Second, l.agent.watchdogChecks()); err != nil {
					t.Errorf("a restart would not cure this: %v", err)
				}
				cancel()
				l.leave()
			})
		})
	}
}

// TestLoopThatIsGone is found.
func TestLoopThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.start()
		l.settle(time.Second)
		if err := health.Run(t.Context(), time.Second, l.agent.watchdogChecks()); err != nil {
			t.Error(err)
		}
		if got := l.agent.statuses.Summary(); got != "No pods" {
			t.Errorf("the status is %q", got)
		}
		vitals := l.agent.watchdogChecks()
		l.kill()
		if err := health.Run(t.Context(), time.Second, vitals); err == nil || !strings.HasPrefix(err.Error(), "sync loop: ") {
			t.Errorf("without a sync loop: %v", err)
		}
	})
}
