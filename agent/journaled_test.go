package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/offline"
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
				l.join(t.TempDir())
				p := shell(t, "once", row.policy, row.script)
				delete(p.Annotations, pod.AnnotationSource)
				if row.deadline > 0 {
					p.Spec.ActiveDeadlineSeconds = &row.deadline
				}
				if row.name == "is refused" {
					p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				l.done.Go(func() {
					for {
						for _, e := range l.reportable() {
							if e.Status == nil || !pod.IsTerminal(e.Status.Phase) {
								continue
							}
							if s, ok := l.agent.cluster.journal.TerminalStatus(p.UID); !ok || s.Phase != e.Status.Phase {
								t.Errorf("the API server would hear that the pod is %s, and the journal has %v", e.Status.Phase, s)
							}
						}
						select {
						case <-l.agent.statuses.Changed():
						case <-ctx.Done():
							return
						}
					}
				})
				l.done.Go(func() { l.agent.mux.Set(ctx, pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
				l.settle(2 * time.Minute)
				if e := l.reportable(); len(e) != 1 || e[0].Status == nil || e[0].Status.Phase != row.want {
					t.Errorf("the API server would hear %+v, want %s", e, row.want)
				}
				stop()
				l.leave()
			})
		})
	}
}

// join starts an agent that has a journal and an API server that does not
// answer.
func (l *lab) join(dir string) {
	l.t.Helper()
	l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = dir+"/none.conf", dir, dir
	l.start()
	l.agent.syncer.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, nil }
}

// reportable returns what the status manager would report.
func (l *lab) reportable() []pod.Entry {
	return podsync.Reportable(l.agent.statuses.List(), l.agent.mayReport)
}

// leave ends such an agent, so that the next can have its journal.
func (l *lab) leave() {
	l.t.Helper()
	l.kill()
	if err := l.agent.cluster.journal.Close(); err != nil {
		l.t.Error(err)
	}
}

// TestNothingIsToldBeforeTheRuntimeAnswers is a board that has started again:
// its agent meets the API server first.
func TestNothingIsToldBeforeTheRuntimeAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		dir := t.TempDir()
		l.join(dir)
		p := shell(t, "web", "Always", "sleep 100000")
		delete(p.Annotations, pod.AnnotationSource)
		set := func() {
			l.done.Go(func() { l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
		}
		set()
		l.settle(time.Minute)
		running := func(want int32) {
			t.Helper()
			e := l.reportable()
			if len(e) != 1 || e[0].Status == nil || e[0].Status.Phase != v1.PodRunning || e[0].Status.ContainerStatuses[0].RestartCount != want {
				t.Errorf("the API server would hear %+v, want a pod that runs after %d restarts", e, want)
			}
		}
		running(0)
		l.leave()
		l.runtime.Reboot()
		l.runtime.Stop()
		l.join(dir)
		set()
		l.settle(time.Minute)
		if e := l.reportable(); len(e) != 1 || e[0].Status != nil {
			t.Errorf("the API server would hear %+v", e)
		}
		if phase := l.status(p.UID).Phase; phase != v1.PodPending {
			t.Errorf("the board shows the pod as %q", phase)
		}
		l.runtime.Start()
		l.settle(2 * time.Minute)
		running(1)
		l.leave()
	})
}

// TestJournalWithoutItsKey is a board whose TPM is broken, or whose key was
// not put into the keyring: pods run, an event is recorded, and the journal stays
// on the disk as it is.
func TestJournalWithoutItsKey(t *testing.T) {
	for _, row := range []struct {
		name, want string
		configure  func(tc *config.TinyletConfiguration, dir string)
	}{
		{"no sealed file", "sealed key", func(tc *config.TinyletConfiguration, dir string) { tc.JournalKeyTPMFile = dir + "/none" }},
		{"torn sealed file", "torn", func(tc *config.TinyletConfiguration, dir string) { tc.JournalKeyTPMFile = dir + "/torn" }},
		{"nothing in the keyring", "keyring", func(tc *config.TinyletConfiguration, _ string) { tc.JournalKeyring = "tinylet:none" }},
		{"no key", "key", func(*config.TinyletConfiguration, string) {}},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				dir := t.TempDir()
				if err := os.WriteFile(dir+"/torn", []byte("tinylet-tpm-key 1\nparent 00"), 0o600); err != nil {
					t.Fatal(err)
				}
				log := slog.New(slog.DiscardHandler)
				store, err := offline.Open(offline.Config{Dir: dir + "/journal", Log: log, Key: func() ([]byte, error) { return []byte("0123456789abcdef0123456789abcdef"), nil }})
				if err != nil {
					t.Fatal(err)
				}
				p := shell(t, "once", "Always", "sleep 100000")
				delete(p.Annotations, pod.AnnotationSource)
				if err := errors.Join(store.Admit(t.Context(), p), store.Close()); err != nil {
					t.Fatal(err)
				}
				before, err := os.ReadFile(dir + "/journal/journal")
				if err != nil {
					t.Fatal(err)
				}
				l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = dir+"/none.conf", dir, dir
				row.configure(&l.cfg.Tinylet, dir)
				l.start()
				if l.agent.cluster.journal != nil {
					t.Error("there is a journal")
				}
				reported := false
				for _, e := range l.agent.events.Recent() {
					reported = reported || e.Reason == offline.ReasonNotJournaled && strings.Contains(e.Message, row.want)
				}
				if !reported {
					t.Errorf("events %+v", l.agent.events.Recent())
				}
				l.agent.syncer.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, nil }
				l.done.Go(func() { l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
				l.settle(time.Minute)
				if _, s, ok := l.agent.statuses.Get(p.UID); !ok || s.Phase != v1.PodRunning {
					t.Errorf("the pod: %v", s)
				}
				l.kill()
				if after, err := os.ReadFile(dir + "/journal/journal"); err != nil || string(after) != string(before) {
					t.Errorf("the journal has changed: %v", err)
				}
			})
		})
	}
}

// TestJournalSettings has a node of a cluster start with each value of journal,
// beside what an earlier agent has kept.
func TestJournalSettings(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	for _, row := range []struct {
		name   string
		set    func(tc *config.TinyletConfiguration, dir string)
		former bool // the journal of before is sealed
		state  offline.State
		kept   bool   // the former pod comes back
		left   string // how the file is then: plain, sealed, none or as it was
		todo   string
		event  bool
	}{
		{"auto, no key", func(*config.TinyletConfiguration, string) {}, false, offline.StatePlain, true, "plain", "unencrypted", false},
		{"auto, a key", func(tc *config.TinyletConfiguration, dir string) { tc.JournalKeyFile = dir + "/key" }, true, offline.StateSealed, true, "sealed", "", false},
		{"auto, a new key", func(tc *config.TinyletConfiguration, dir string) { tc.JournalKeyFile = dir + "/key" }, false, offline.StateSealed, false, "sealed", "journal-key --migrate", true},
		{"auto, a key that all can read", func(tc *config.TinyletConfiguration, dir string) { tc.JournalKeyFile = dir + "/open" }, true, offline.StateNone, false, "as it was", "chmod 600", true},
		{"sealed, a key", func(tc *config.TinyletConfiguration, dir string) {
			tc.Journal, tc.JournalKeyFile = config.JournalSealed, dir+"/key"
		}, true, offline.StateSealed, true, "sealed", "", false},
		{"sealed, no key", func(tc *config.TinyletConfiguration, _ string) { tc.Journal = config.JournalSealed }, false, offline.StateNone, false, "as it was", "no key is configured", true},
		{"sealed, no key that can be read", func(tc *config.TinyletConfiguration, dir string) {
			tc.Journal, tc.JournalKeyFile = config.JournalSealed, dir+"/none"
		}, true, offline.StateNone, false, "as it was", "no such file", true},
		{"off", func(tc *config.TinyletConfiguration, _ string) { tc.Journal = config.JournalOff }, false, offline.StateOff, false, "none", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				dir := t.TempDir()
				for name, mode := range map[string]os.FileMode{"key": 0o600, "open": 0o644} {
					if err := errors.Join(os.WriteFile(dir+"/"+name, []byte(key), 0o600), os.Chmod(dir+"/"+name, mode)); err != nil {
						t.Fatal(err)
					}
				}
				former := offline.Config{Dir: dir + "/journal", Log: slog.New(slog.DiscardHandler)}
				if row.former {
					former.Key = func() ([]byte, error) { return []byte(key), nil }
				}
				store, err := offline.Open(former)
				if err != nil {
					t.Fatal(err)
				}
				old, p := shell(t, "old", "Always", "sleep 100000"), shell(t, "new", "Always", "sleep 100000")
				delete(old.Annotations, pod.AnnotationSource)
				delete(p.Annotations, pod.AnnotationSource)
				if err := errors.Join(store.Admit(t.Context(), old), store.Close()); err != nil {
					t.Fatal(err)
				}
				before, err := os.ReadFile(dir + "/journal/journal")
				if err != nil {
					t.Fatal(err)
				}
				row.set(&l.cfg.Tinylet, dir)
				l.join(dir)
				state := l.agent.registration.state.State()
				if state.Journal.State != row.state || (row.todo == "") != (state.Problem == "") || !strings.Contains(state.Problem, row.todo) {
					t.Errorf("the journal is %+v, to do: %q", state.Journal, state.Problem)
				}
				event := slices.ContainsFunc(l.agent.events.Recent(), func(e event.Event) bool { return e.Reason == offline.ReasonNotJournaled })
				if event != row.event {
					t.Errorf("events %+v", l.agent.events.Recent())
				}
				kept := l.agent.cluster.journal != nil && len(l.agent.cluster.journal.Pods()) > 0
				if kept != row.kept {
					t.Errorf("the former pod: %v", kept)
				}
				// Pods of the API server run in any case.
				l.done.Go(func() { l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
				l.settle(time.Minute)
				if _, s, ok := l.agent.statuses.Get(p.UID); !ok || s.Phase != v1.PodRunning {
					t.Errorf("the pod: %v", s)
				}
				if l.agent.cluster.journal != nil {
					l.leave()
				} else {
					l.kill()
				}
				after, err := os.ReadFile(dir + "/journal/journal")
				left := "sealed"
				switch {
				case errors.Is(err, os.ErrNotExist):
					left = "none"
				case err != nil:
					t.Fatal(err)
				case string(after) == string(before):
					left = "as it was"
				case strings.Contains(string(after), string(p.UID)):
					left = "plain"
				}
				if left != row.left {
					t.Errorf("the file is %s, want %s", left, row.left)
				}
			})
		})
	}
}
