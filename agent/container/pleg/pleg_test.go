package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
)

// bench is a PLEG on a fake, with a consumer that records what it receives.
type bench struct {
	*testing.T
	rt   *fake.Runtime
	pleg *PLEG

	mu        sync.Mutex
	changes   []types.UID
	snapshots [][]Pod
}

// run gives test a running PLEG in a bubble of virtual time.
func run(t *testing.T, prepare func(*fake.Runtime), test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, rt: fake.New(fake.Config{})}
		b.rt.AddImage("busybox", fake.Program{})
		if prepare != nil {
			prepare(b.rt)
		}
		b.pleg = New(Config{Runtime: b.rt, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.pleg.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v, want its context's end", err)
			}
		})
		wg.Go(func() { b.consume(ctx) })
		test(b)
		cancel()
		wg.Wait()
	})
}

func (b *bench) consume(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case uid := <-b.pleg.Changes():
			b.mu.Lock()
			b.changes = append(b.changes, uid)
			b.mu.Unlock()
		case pods := <-b.pleg.Snapshots():
			b.mu.Lock()
			b.snapshots = append(b.snapshots, pods)
			b.mu.Unlock()
		}
	}
}

// told lets d pass and returns the pods that were reported since the last call.
func (b *bench) told(d time.Duration) []types.UID {
	time.Sleep(d)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Compact(slices.Sorted(slices.Values(b.changes)))
	b.changes = nil
	return out
}

// latest is the newest snapshot.
func (b *bench) latest() []Pod {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.snapshots) == 0 {
		b.Fatal("there is no snapshot yet")
	}
	out := slices.Clone(b.snapshots[len(b.snapshots)-1])
	slices.SortFunc(out, func(x, y Pod) int { return strings.Compare(string(x.Ref.UID), string(y.Ref.UID)) })
	return out
}

// calls is how many calls the runtime got while d passed.
func (b *bench) calls(d time.Duration, methods ...string) int {
	before := b.rt.Count(methods...)
	time.Sleep(d)
	synctest.Wait()
	return b.rt.Count(methods...) - before
}

func (b *bench) start(uid string, annotations map[string]string, argv ...string) (sandboxID, containerID string) {
	b.Helper()
	return startPod(b.T, b.rt, uid, annotations, argv...)
}

func startPod(t *testing.T, rt *fake.Runtime, uid string, annotations map[string]string, argv ...string) (sandboxID, containerID string) {
	t.Helper()
	labels := map[string]string{
		container.LabelPodUID:       uid,
		container.LabelPodNamespace: "default",
		container.LabelPodName:      "pod-" + uid,
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod-" + uid, Namespace: "default", Uid: uid},
		Labels:   labels,
	}
	ctx := context.Background()
	sandboxID, err := rt.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	containerID, err = rt.CreateContainer(ctx, sandboxID, &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Image:       &runtimeapi.ImageSpec{Image: "busybox"},
		Command:     argv,
		Labels:      labels,
		Annotations: annotations,
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(ctx, containerID); err != nil {
		t.Fatal(err)
	}
	return sandboxID, containerID
}

func want(t *testing.T, what string, got []types.UID, uids ...types.UID) {
	t.Helper()
	slices.Sort(uids)
	if !slices.Equal(got, uids) {
		t.Errorf("%s: reported %v, want %v", what, got, uids)
	}
}

const soon = 10 * time.Millisecond

func TestEventsReportPodsAtOnce(t *testing.T) {
	run(t, nil, func(b *bench) {
		want(t, "empty runtime", b.told(5*time.Second))
		sandboxID, id := b.start("a", nil)
		want(t, "start", b.told(soon), "a")
		b.rt.ExitContainer(id, 1)
		want(t, "exit", b.told(soon), "a")
		if err := b.rt.RemovePodSandbox(b.Context(), sandboxID); err != nil {
			t.Fatal(err)
		}
		want(t, "removal", b.told(soon), "a")
		b.told(10 * time.Second)
		if pods := b.latest(); len(pods) != 0 {
			t.Errorf("the snapshot still has %v", pods)
		}
	})
}

func TestStartFindsWhatRuns(t *testing.T) {
	run(t, func(rt *fake.Runtime) {
		startPod(t, rt, "a", map[string]string{container.AnnotationPodTerminationGrace: "45"})
		startPod(t, rt, "b", nil, "/bin/true")
		_, err := rt.RunPodSandbox(context.Background(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "somebody's", Uid: "x"},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
	}, func(b *bench) {
		want(t, "first list", b.told(soon), "a", "b")
		wanted := []Pod{
			{Ref: pod.Ref{UID: "a", Namespace: "default", Name: "pod-a"}, GracePeriod: 45 * time.Second, Running: true},
			{Ref: pod.Ref{UID: "b", Namespace: "default", Name: "pod-b"}, GracePeriod: -1, Running: true},
		}
		if diff := cmp.Diff(wanted, b.latest()); diff != "" {
			t.Errorf("snapshot (-want +got):\n%s", diff)
		}
		want(t, "nothing new", b.told(30*time.Minute))
	})
}

func TestIdleBudget(t *testing.T) {
	const budget = 5 // calls in a minute must be fewer
	idle := func(t *testing.T, b *bench, what string) {
		t.Helper()
		time.Sleep(10 * time.Second)
		for minute := range 60 {
			if n := b.calls(time.Minute); n >= budget {
				t.Errorf("minute %d over %s stream: %d calls", minute, what, n)
			}
		}
	}
	t.Run("proven stream", func(t *testing.T) {
		run(t, nil, func(b *bench) {
			time.Sleep(time.Second)
			b.start("a", nil)
			idle(t, b, "a proven")
			hour := b.rt.Count()
			if n := b.calls(time.Hour); n > 60+2*8 {
				t.Errorf("an hour costs %d calls", n)
			}
			if b.rt.Count() == hour {
				t.Error("an hour without a heartbeat")
			}
		})
	})
	t.Run("unproven stream", func(t *testing.T) {
		run(t, func(rt *fake.Runtime) { startPod(t, rt, "a", nil) }, func(b *bench) { idle(t, b, "an unproven") })
	})
}

func TestLostEventsAreFound(t *testing.T) {
	t.Run("over an unproven stream within little more than a minute", func(t *testing.T) {
		var id string
		run(t, func(rt *fake.Runtime) { _, id = startPod(t, rt, "a", nil) }, func(b *bench) {
			b.told(time.Hour)
			b.rt.LoseEvents(1)
			b.rt.ExitContainer(id, 1)
			want(t, "lost exit", b.told(70*time.Second), "a")
		})
	})
	t.Run("over a proven stream by the rare relist", func(t *testing.T) {
		run(t, nil, func(b *bench) {
			time.Sleep(time.Second)
			_, id := b.start("a", nil)
			b.told(time.Minute)
			b.rt.LoseEvents(1)
			b.rt.ExitContainer(id, 1)
			want(t, "lost exit", b.told(11*time.Minute+listLimit), "a")
		})
	})
	t.Run("around the subscription", func(t *testing.T) {
		var id string
		run(t, func(rt *fake.Runtime) {
			_, id = startPod(t, rt, "a", nil)
			rt.LoseEvents(1)
		}, func(b *bench) {
			want(t, "first list", b.told(time.Second), "a")
			b.rt.ExitContainer(id, 1)
			want(t, "lost exit", b.told(2*repeatDelay), "a")
		})
	})
}

// TestRelistTellsChangesOnceMore checks that the next relist reports again what
// events have reported, because an event may arrive before the runtime shows the
// change.
func TestRelistTellsChangesOnceMore(t *testing.T) {
	run(t, nil, func(b *bench) {
		time.Sleep(2 * repeatDelay)
		b.start("a", nil)
		_, id := b.start("b", nil)
		b.rt.ExitContainer(id, 1)
		want(t, "events", b.told(soon), "a", "b")
		want(t, "the minutes after, the stream being proven", b.told(relistPeriod/2))
		if err := b.rt.RemoveContainer(b.Context(), id); err != nil {
			t.Fatal(err)
		}
		want(t, "removal", b.told(soon), "b")
		want(t, "the relist", b.told(relistPeriod), "a", "b")
		want(t, "the relists after it", b.told(3*relistPeriod))
	})
}

func TestEventsWithoutOwner(t *testing.T) {
	run(t, func(rt *fake.Runtime) { rt.BareEvents(true) }, func(b *bench) {
		b.told(5 * time.Second)
		_, id := b.start("a", nil)
		want(t, "unknown objects are listed", b.told(2*time.Second), "a")
		lists := b.rt.Count("ListPodSandbox")
		b.rt.ExitContainer(id, 1)
		want(t, "exit of a known container", b.told(soon), "a")
		if n := b.rt.Count("ListPodSandbox") - lists; n != 0 {
			t.Errorf("a known container's event caused %d lists", n)
		}
	})
}

func TestRuntimeRestart(t *testing.T) {
	run(t, nil, func(b *bench) {
		time.Sleep(time.Second)
		_, idA := b.start("a", nil)
		_, idB := b.start("b", nil)
		b.told(time.Minute)

		b.rt.Stop()
		b.told(time.Minute)
		b.rt.ExitContainer(idA, 0) // nobody hears
		b.rt.Start()
		want(t, "what happened meanwhile", b.told(6*time.Second), "a")
		b.rt.ExitContainer(idB, 0)
		want(t, "events come again", b.told(soon), "b")
	})
}

func TestNoBusyLoop(t *testing.T) {
	tests := []struct {
		name  string
		begin func(*fake.Runtime)
		limit int // calls in a minute
	}{
		{"runtime gone", (*fake.Runtime).Stop, 60},
		{"runtime hung", (*fake.Runtime).Hang, 20},
		{"calls fail", func(rt *fake.Runtime) { rt.Inject("*", fake.Fault{Err: errors.New("broken")}) }, 60},
		{"stream breaks at once", func(rt *fake.Runtime) {
			rt.Inject("ContainerEvents", fake.Fault{Err: container.ErrUnavailable})
			rt.Restart()
		}, 180},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, nil, func(b *bench) {
				time.Sleep(time.Second)
				b.start("a", nil)
				time.Sleep(time.Minute)
				tt.begin(b.rt)
				time.Sleep(2 * time.Minute)
				n := b.calls(time.Minute)
				if n > tt.limit {
					t.Errorf("%d calls in a minute, at most %d are decent", n, tt.limit)
				}
				if n == 0 {
					t.Error("nobody tries any more")
				}
			})
		})
	}
}

// TestNoBusyLoopOfEvents has many events without a pod while lists fail at once.
func TestNoBusyLoopOfEvents(t *testing.T) {
	run(t, nil, func(b *bench) {
		time.Sleep(time.Minute)
		b.rt.Inject("ListPodSandbox", fake.Fault{Err: errors.New("broken")})
		before := b.rt.Count("ListPodSandbox")
		for range 6000 {
			b.pleg.handle(&runtimeapi.ContainerEventResponse{ContainerId: "x"})
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.rt.Count("ListPodSandbox") - before; n == 0 || n > 70 {
			t.Errorf("%d lists in a minute, want about 60", n)
		}
	})
}

// TestErrorTexts shows that the errors of lists say once what was attempted.
func TestErrorTexts(t *testing.T) {
	d, err := cri.New(cri.Config{RuntimeEndpoint: filepath.Join(t.TempDir(), "none.sock"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := PLEG{cfg: Config{Runtime: d}}
	if _, err := p.list(t.Context()); strings.Count(fmt.Sprint(err), "list sandboxes") != 1 {
		t.Errorf("the error is %v", err)
	}
}

func TestStreamThatNeverOpensIsReplacedByPolling(t *testing.T) {
	for name, err := range map[string]error{
		"unsupported": fmt.Errorf("no such call: %w", container.ErrUnsupported),
		"broken":      errors.New("broken"),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(rt *fake.Runtime) { rt.Inject("ContainerEvents", fake.Fault{Err: err}) }, func(b *bench) {
				b.told(time.Minute)
				_, id := b.start("a", nil)
				want(t, "start", b.told(1100*time.Millisecond), "a")
				b.rt.ExitContainer(id, 1)
				want(t, "exit", b.told(1100*time.Millisecond), "a")
			})
		})
	}
}

func TestEventsAfterAnUpgradeOfTheRuntime(t *testing.T) {
	run(t, func(rt *fake.Runtime) {
		rt.Inject("ContainerEvents", fake.Fault{Err: container.ErrUnsupported, Times: 1})
	}, func(b *bench) {
		b.told(12 * time.Minute)
		b.start("a", nil)
		want(t, "start", b.told(soon), "a")
	})
}

func TestHealthy(t *testing.T) {
	outages := map[string]struct{ begin, end func(*fake.Runtime) }{
		"hung": {(*fake.Runtime).Hang, (*fake.Runtime).Resume},
		"gone": {(*fake.Runtime).Stop, (*fake.Runtime).Start},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *bench) {
				for range 10 {
					time.Sleep(time.Minute)
					if err := b.pleg.Healthy(time.Now()); err != nil {
						t.Fatalf("an idle runtime: %v", err)
					}
				}
				outage.begin(b.rt)
				time.Sleep(30 * time.Second)
				if err := b.pleg.Healthy(time.Now()); err != nil {
					t.Errorf("half a minute: %v", err)
				}
				time.Sleep(silenceLimit + time.Minute)
				err := b.pleg.Healthy(time.Now())
				if err == nil {
					t.Fatal("a long outage is healthy")
				}
				t.Log(err)
				outage.end(b.rt)
				time.Sleep(2 * retryMax)
				synctest.Wait()
				if err := b.pleg.Healthy(time.Now()); err != nil {
					t.Errorf("after the outage: %v", err)
				}
			})
		})
	}
}

func TestHungAtTheStart(t *testing.T) {
	run(t, (*fake.Runtime).Hang, func(b *bench) {
		b.told(silenceLimit + time.Minute)
		if err := b.pleg.Healthy(time.Now()); err == nil {
			t.Error("a runtime that never answered is healthy")
		}
		b.rt.Resume()
		b.told(10 * time.Second)
		if err := b.pleg.Healthy(time.Now()); err != nil {
			t.Errorf("after the hang: %v", err)
		}
		b.start("a", nil)
		want(t, "start", b.told(soon), "a")
	})
}

// TestSlowConsumer checks that a slow consumer blocks nothing else.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.AddImage("busybox", fake.Program{})
		p := New(Config{Runtime: rt, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(10 * time.Second)
		<-p.Snapshots()
		for range 100 {
			_, id := startPod(t, rt, fmt.Sprintf("x%d", rt.Count()), nil)
			rt.ExitContainer(id, 0)
		}
		synctest.Wait()
		seen := map[types.UID]int{}
		for len(seen) < 100 {
			seen[<-p.Changes()]++
		}
		for uid, n := range seen {
			if n != 1 {
				t.Errorf("%s was reported %d times though nobody took it", uid, n)
			}
		}
		cancel()
		<-done
	})
}

// TestChangeAfterTheUIDWasTaken checks that a pod is delivered again if it changes
// after its UID was received and before that is recorded. Another pod that changes
// while it is queued is delivered once.
func TestChangeAfterTheUIDWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		p.changed("a")
		p.changed("b")
		ended := make(chan struct{})
		go func() {
			p.deliver(ctx)
			close(ended)
		}()
		synctest.Wait() // "a" is offered
		p.mu.Lock()
		got := []types.UID{<-p.Changes()}
		p.changed("a")
		p.changed("b")
		p.mu.Unlock()
		for range 2 {
			select {
			case uid := <-p.Changes():
				got = append(got, uid)
			case <-time.After(time.Minute):
			}
		}
		synctest.Wait()
		select {
		case uid := <-p.Changes():
			t.Errorf("%s is delivered once more", uid)
		default:
		}
		if want := []types.UID{"a", "b", "a"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		cancel()
		<-ended
	})
}
