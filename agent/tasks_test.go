package agent

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/fake"
)

var update = flag.Bool("update", false, "write the golden files anew")

// supervised runs one task in a bubble until the test's end, with what is
// logged.
func supervised(t *testing.T, name string, once bool, run func(context.Context) error) (*supervisor, *bytes.Buffer, context.CancelFunc, *sync.WaitGroup) {
	t.Helper()
	var text bytes.Buffer
	s := &supervisor{log: slog.New(slog.NewTextHandler(&text, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx, &task{name: name, once: once, run: run}) })
	return s, &text, cancel, &wg
}

func TestTaskThatEndsEarlyIsRestarted(t *testing.T) {
	for name, failure := range map[string]error{"with an error": errors.New("no epoll"), "without an error": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				begins, broken := []time.Duration(nil), true
				s, text, cancel, wg := supervised(t, "poller", false, func(ctx context.Context) error {
					mu.Lock()
					begins = append(begins, time.Since(start))
					fails := broken
					mu.Unlock()
					if fails {
						return failure
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				health := func(want string) {
					t.Helper()
					synctest.Wait()
					got := ""
					if err := s.Healthy(time.Now()); err != nil {
						got = err.Error()
					}
					if !strings.HasPrefix(got, want) || want == "" && got != "" {
						t.Errorf("after %v the tasks' health is %q, want %q", time.Since(start), got, want)
					}
				}
				health("poller does not run (ended early once): ")
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123}
				for i := range want {
					want[i] *= time.Second
				}
				mu.Lock()
				if !slices.Equal(begins, want) {
					t.Errorf("it began at %v, want %v", begins, want)
				}
				broken = false
				mu.Unlock()
				if n := strings.Count(text.String(), "task=poller"); n != 4 || !strings.Contains(text.String(), "level=ERROR") {
					t.Errorf("%d lines of 8 failures:\n%s", n, text)
				}
				time.Sleep(time.Minute)
				health("poller was restarted (ended early 8 times): ")
				time.Sleep(wellAfter)
				health("")
				cancel()
				wg.Wait()
				health("")
			})
		})
	}
}

// TestHealthyChangesNothing asks how tasks do at different times. What is over is
// forgotten when another task fails.
func TestHealthyChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s supervisor
		start := time.Now()
		s.note("poller", failure{times: 2, err: errors.New("no epoll"), since: start})
		if err := s.Healthy(start.Add(wellAfter)); err != nil {
			t.Errorf("a task that has run well since: %v", err)
		}
		if err := s.Healthy(start); err == nil || !strings.HasPrefix(err.Error(), "poller was restarted") {
			t.Errorf("after somebody has asked: %v", err)
		}
		time.Sleep(wellAfter)
		s.note("probes", failure{times: 1, err: errors.New("no"), waiting: true})
		if names := slices.Collect(maps.Keys(s.failing)); !slices.Equal(names, []string{"probes"}) {
			t.Errorf("remembered are %v", names)
		}
	})
}

// TestBackoffBeginsAnew has a task that fails after it has run well.
func TestBackoffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		_, _, cancel, wg := supervised(t, "a", false, func(ctx context.Context) error {
			if runs.Add(1)%5 == 0 {
				time.Sleep(wellAfter)
			}
			return errors.New("no")
		})
		time.Sleep(wellAfter + (1+2+4+8+1+2)*time.Second - time.Millisecond)
		if synctest.Wait(); runs.Load() != 6 {
			t.Errorf("%d runs", runs.Load())
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); runs.Load() != 7 {
			t.Errorf("%d runs", runs.Load())
		}
		cancel()
		wg.Wait()
	})
}

func TestTaskOfOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		s, text, cancel, wg := supervised(t, "cleanup", true, func(context.Context) error {
			if runs++; runs == 1 {
				return errors.New("busy")
			}
			return nil
		})
		defer cancel()
		wg.Wait()
		if runs != 2 || s.Healthy(time.Now()) != nil || strings.Count(text.String(), "busy") != 1 {
			t.Errorf("%d runs, %v\n%s", runs, s.Healthy(time.Now()), text)
		}
	})
}

// TestErrorAtTheEndIsLogged has tasks that return as their context ends.
func TestErrorAtTheEndIsLogged(t *testing.T) {
	for name, row := range map[string]struct {
		err    error
		logged bool
	}{"its cause": {context.Canceled, false}, "nothing": {nil, false}, "another error": {errors.New("disk full"), true}} {
		t.Run(name, func(t *testing.T) {
			_, text, cancel, wg := supervised(t, "a", false, func(ctx context.Context) error { <-ctx.Done(); return row.err })
			cancel()
			wg.Wait()
			if got := strings.Contains(text.String(), "task=a error=\"disk full\""); got != row.logged || !row.logged && text.Len() > 0 {
				t.Errorf("logged: %s", text)
			}
		})
	}
}

// everything is an agent with all that can be configured, but for the pods'
// network, which is the host's.
func everything(t *testing.T, joined bool) *parts {
	t.Helper()
	dir := t.TempDir()
	if t.Setenv("NOTIFY_SOCKET", ""); joined {
		t.Setenv("NOTIFY_SOCKET", dir+"/nobody")
	}
	l := newLab(t, dir)
	l.cfg.Kubelet.HealthzPort, l.cfg.Kubelet.CPUManagerPolicy = new(int32(0)), "static"
	l.cfg.Kubelet.Address, l.cfg.Kubelet.StaticPodURL = "127.0.0.1", "http://127.0.0.1:1/"
	l.cfg.Kubelet.ReservedSystemCPUs = "0"
	l.cfg.Tinylet.ImagesFolder, l.cfg.Tinylet.ObjectsFolder = dir+"/images", dir+"/objects"
	l.cfg.Tinylet.Network = config.Network{Mode: config.NetworkRouted, ConfigFolder: dir + "/net.d", Bridge: "cni0", Services: true}
	if joined {
		l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = dir+"/kubeconfig", dir+"/state", dir+"/pki"
	}
	h, tree := newHierarchy(t)
	h.write("/", map[string]string{"cgroup.controllers": "cpu cpuset memory\n", "cpuset.cpus.effective": "0-3\n"})
	below, err := newBelow("unix://" + dir + "/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = below.Close() })
	a, err := assemble(l.cfg, fake.New(fake.Config{}), below, nil, tree, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.poller.Close)
	if joined {
		t.Cleanup(func() { _ = a.cluster.journal.Close() })
	}
	if err := a.assembleNetwork(l.cfg, l.runtime, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTaskList holds what the agent runs against the lists in testdata, which
// -update writes anew.
func TestTaskList(t *testing.T) {
	for name, joined := range map[string]bool{"standalone": false, "joined": true} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, task := range everything(t, joined).tasks() {
				if task.name == "" || task.run == nil || slices.Contains(names, task.name) {
					t.Errorf("task %q is unnamed, empty or twice there", task.name)
				}
				names = append(names, task.name)
			}
			got, path := strings.Join(names, "\n")+"\n", filepath.Join("testdata", "tasks-"+name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the tasks are others than in %s:\n%s", path, diff)
			}
		})
	}
}

// TestTasksCanRunAgain runs each task twice: one that ends early is run again.
func TestTasksCanRunAgain(t *testing.T) {
	a := everything(t, true)
	a.network, a.networkTasks = nil, nil // they are of this machine
	for _, task := range a.tasks() {
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- task.run(ctx) }()
			for range 10 {
				select {
				case err := <-done:
					t.Fatalf("task %s ends early: %v", task.name, err)
				default:
					time.Sleep(time.Millisecond)
				}
			}
			cancel()
			if err := <-done; !endedBy(ctx, err) {
				t.Errorf("task %s ends with %v", task.name, err)
			}
			if task.name == "cgroup-events" {
				break // it can, after a failure: the context's end closes it
			}
		}
	}
}

// TestHealthNamesTasks has a task that does not run: it is one of the checks
// of /healthz and of the status.
func TestHealthNamesTasks(t *testing.T) {
	a := everything(t, false)
	tell := func() (text string) {
		for _, check := range a.checks() {
			if check.Name == "tasks" {
				if err := check.Healthy(time.Now()); err != nil {
					return err.Error()
				}
				return "ok"
			}
		}
		return "no such check"
	}
	if got := tell(); got != "ok" {
		t.Errorf("at first: %s", got)
	}
	a.supervisor.note("cgroup-events", failure{times: 1, err: errors.New("bad file descriptor"), waiting: true})
	if got := tell(); got != "cgroup-events does not run (ended early once): bad file descriptor" {
		t.Errorf("while it does not run: %s", got)
	}
}
