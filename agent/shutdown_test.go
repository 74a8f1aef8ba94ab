package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/wait"
)

// goesDown gives the lab's node 20 s to end its pods, 5 of them for critical
// ones, and starts the agent.
func (l *lab) goesDown() {
	l.t.Helper()
	l.cfg.Kubelet.ShutdownGracePeriod = metav1.Duration{Duration: 20 * time.Second}
	l.cfg.Kubelet.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 5 * time.Second}
	l.start()
	ctx, cancel := context.WithCancel(l.t.Context())
	l.t.Cleanup(cancel)
	stop := l.stop
	l.stop = func() { cancel(); stop() }
	l.done.Go(func() { _ = l.agent.shutdown.Run(ctx) })
}

func TestShutdownEndsPodsInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		web, once := shell(t, "web", "Always", "sleep 100000"), shell(t, "once", "Never", "exit 0")
		critical := shell(t, "critical", "Always", "sleep 100000")
		priority := int32(2000000000)
		critical.Spec.Priority = &priority
		l.want(web, critical, once)
		l.goesDown()
		l.settle(20 * time.Second)

		var lefts []int
		done := make(chan error, 1)
		l.done.Go(func() { done <- l.agent.shutdown.Drain(t.Context()) })
		for range 12 {
			l.settle(time.Second)
			if n := len(l.agent.evictable.Unfinished()); len(lefts) == 0 || lefts[len(lefts)-1] != n {
				lefts = append(lefts, n)
			}
		}
		if !slices.Equal(lefts, []int{2, 1, 0}) && !slices.Equal(lefts, []int{1, 0}) {
			t.Errorf("pods left: %v, want one after the other", lefts)
		}
		if err := <-done; err != nil {
			t.Errorf("going down: %v", err)
		}
		for _, p := range []*v1.Pod{web, critical} {
			st := l.status(p.UID)
			if st.Phase != v1.PodFailed || st.Reason != "Terminated" || st.Message != shutdown.MessageEnded {
				t.Errorf("%s: %s %s %q", p.Name, st.Phase, st.Reason, st.Message)
			}
			i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
			if i < 0 || st.Conditions[i].Reason != v1.PodReasonTerminationByKubelet {
				t.Errorf("%s: conditions %+v", p.Name, st.Conditions)
			}
			if slices.Contains(l.reasons(p.Name), "Terminated") {
				t.Errorf("%s has an event for what is the node's", p.Name)
			}
		}
		if st := l.status(once.UID); st.Phase != v1.PodSucceeded {
			t.Errorf("what had ended before: %s %s", st.Phase, st.Reason)
		}
		if running := l.running(); len(running) > 0 {
			t.Errorf("still running: %v", running)
		}

		late := shell(t, "late", "Always", "sleep 100000")
		l.want(web, critical, once, late)
		l.settle(5 * time.Second)
		if st := l.status(late.UID); st.Phase != v1.PodFailed || st.Reason != "NodeShutdown" {
			t.Errorf("a pod that comes meanwhile: %s %s %q", st.Phase, st.Reason, st.Message)
		}
		l.agent.shutdown.Cancel()
		next := shell(t, "next", "Always", "sleep 100000")
		l.want(web, critical, once, late, next)
		l.settle(20 * time.Second)
		if st := l.status(next.UID); st.Phase != v1.PodRunning {
			t.Errorf("a pod that comes after it was taken back: %s %s", st.Phase, st.Reason)
		}
		if st := l.status(web.UID); st.Phase != v1.PodFailed {
			t.Errorf("what had ended runs again: %s", st.Phase)
		}
	})
}

// A pod that is being deleted keeps the reason of its own, and stops sooner.
func TestShutdownHurriesWhatEndsAlready(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		slow := shell(t, "slow", "Always", "trap '' TERM; sleep 100000")
		long := int64(600)
		slow.Spec.TerminationGracePeriodSeconds = &long
		l.want(slow)
		l.goesDown()
		l.settle(10 * time.Second)
		l.want()
		l.settle(time.Second)
		l.done.Go(func() { _ = l.agent.shutdown.Drain(t.Context()) })
		l.settle(30 * time.Second)
		if running := l.running(); len(running) > 0 {
			t.Errorf("still running: %v", running)
		}
	})
}

// The agent's end leaves the pods alone, unless the machine goes down.
func TestFlagOfShutdown(t *testing.T) {
	for _, flagged := range []bool{false, true} {
		bubble(t, func(t *testing.T, l *lab) {
			l.want(shell(t, "web", "Always", "sleep 100000"))
			l.goesDown()
			l.settle(10 * time.Second)
			if flagged {
				if err := os.WriteFile(filepath.Join(filepath.Dir(l.cfg.Tinylet.SocketPath), flagName), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			told, tell := context.WithCancel(t.Context())
			inner, end := context.WithCancel(t.Context())
			l.done.Go(func() { l.agent.stop(told, inner, end) })
			l.settle(time.Second)
			if inner.Err() != nil {
				t.Fatal("the agent ended by itself")
			}
			tell()
			l.settle(25 * time.Second)
			if inner.Err() == nil {
				t.Error("the agent goes on")
			}
			if got := len(l.running()); (got == 0) != flagged {
				t.Errorf("flag %t: %d containers run", flagged, got)
			}
			l.agent.shutdown.RemoveFlag()
			if l.agent.shutdown.Requested() {
				t.Error("the next start finds the flag of the last one")
			}
		})
	}
}

// What the shutdown has ended runs again after the reboot, unless the API
// server has heard that it failed.
func TestJournalAfterShutdown(t *testing.T) {
	for _, row := range []struct {
		name  string
		told  bool
		phase v1.PodPhase
	}{
		{"the server has heard of it", true, v1.PodFailed},
		{"without the server", false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			log := slog.New(slog.DiscardHandler)
			open := func() *offline.Store {
				store, err := offline.Open(offline.Config{Dir: dir, Log: log})
				if err != nil {
					t.Fatal(err)
				}
				return store
			}
			p := shell(t, "web", "Always", "sleep 100000")
			delete(p.Annotations, pod.AnnotationSource)
			p.Status = v1.PodStatus{}
			bubble(t, func(t *testing.T, l *lab) {
				store := open()
				l.goesDown()
				ended := p.DeepCopy()
				ended.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: shutdown.ReasonEnded}
				j := podsync.NewJournaled(l.agent.syncer, store, wait.NewWakeup())
				if err := store.Admit(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				l.agent.statuses.Set(p, ended.Status, pod.Sandbox{})
				if err := j.Finish(t.Context(), pod.RefOf(p), p); err != nil {
					t.Fatal(err)
				}
				store.FinishAll([]*v1.Pod{p}, shutdown.Terminated)
				if row.told {
					store.FinishAll([]*v1.Pod{ended}, shutdown.Terminated)
					store.FinishAll([]*v1.Pod{ended}, shutdown.Terminated) // the source reports it repeatedly
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
			})
			store := open()
			pods := store.Pods()
			if len(pods) != 1 || pods[0].Status.Phase != row.phase {
				t.Errorf("the journal has %d pods, %+v; want one in phase %q", len(pods), pods, row.phase)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
