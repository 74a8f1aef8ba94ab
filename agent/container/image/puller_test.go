package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod/event"
)

type bench struct {
	*testing.T
	rt     *fake.Runtime
	events *event.Recorder
	puller *Puller
}

func run(t *testing.T, serialize bool, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newBench(t, Config{Serialize: serialize})) })
}

func newBench(t *testing.T, c Config) *bench {
	c.Log = slog.New(slog.DiscardHandler)
	b := &bench{T: t, rt: fake.New(fake.Config{}), events: event.NewRecorder(c.Log)}
	c.Images, c.Events = b.rt, b.events
	b.puller = NewPuller(c)
	return b
}

func (b *bench) ensure(ctx context.Context, uid, image string, policy v1.PullPolicy) (string, error) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: uid}}
	ref, _, err := b.puller.Ensure(ctx, p, &v1.Container{Name: "main", Image: image, ImagePullPolicy: policy}, Options{})
	return ref, err
}

// fails wants an error with the reason, and answers it.
func (b *bench) fails(uid, image string, policy v1.PullPolicy, reason string) *Error {
	b.Helper()
	ref, err := b.ensure(b.Context(), uid, image, policy)
	failure := new(Error)
	if !errors.As(err, &failure) {
		b.Fatalf("Ensure answered %q, %v; want %s", ref, err, reason)
	}
	if failure.Reason != reason {
		b.Fatalf("the reason is %q (%s), want %q", failure.Reason, failure.Message, reason)
	}
	if failure.Message == "" {
		b.Error("the failure has no message")
	}
	return failure
}

func (b *bench) works(uid, image string, policy v1.PullPolicy) string {
	b.Helper()
	ref, err := b.ensure(b.Context(), uid, image, policy)
	if err != nil || ref == "" {
		b.Fatalf("Ensure answered %q, %v", ref, err)
	}
	return ref
}

func (b *bench) reasons() []string {
	var out []string
	for _, e := range b.events.Recent() {
		out = append(out, e.Type+" "+e.Reason)
	}
	return out
}

func TestPolicies(t *testing.T) {
	const img = "localhost/app:1"
	tests := []struct {
		name     string
		image    string
		policy   v1.PullPolicy
		present  bool
		pullable bool
		reason   string // of the failure; empty is success
		pulls    int
		events   []string
	}{
		{name: "IfNotPresent, present", policy: v1.PullIfNotPresent, present: true, events: []string{"Normal Pulled"}},
		{name: "IfNotPresent, absent", policy: v1.PullIfNotPresent, pullable: true, pulls: 1, events: []string{"Normal Pulling", "Normal Pulled"}},
		{name: "IfNotPresent, not to be had", policy: v1.PullIfNotPresent, reason: ReasonPull, pulls: 1, events: []string{"Normal Pulling", "Warning Failed"}},
		{name: "Always, present", policy: v1.PullAlways, present: true, pullable: true, pulls: 1, events: []string{"Normal Pulling", "Normal Pulled"}},
		{name: "Always, registry away", policy: v1.PullAlways, present: true, reason: ReasonPull, pulls: 1, events: []string{"Normal Pulling", "Warning Failed"}},
		{name: "Never, present", policy: v1.PullNever, present: true, events: []string{"Normal Pulled"}},
		{name: "Never, absent", policy: v1.PullNever, pullable: true, reason: ReasonNeverPull, events: []string{"Warning ErrImageNeverPull"}},
		{name: "no policy with a tag", present: true, events: []string{"Normal Pulled"}},
		{name: "no policy with latest", image: "localhost/app:latest", present: true, pullable: true, pulls: 1, events: []string{"Normal Pulling", "Normal Pulled"}},
		{name: "no policy without a tag", image: "localhost/app", present: true, pullable: true, pulls: 1, events: []string{"Normal Pulling", "Normal Pulled"}},
		{name: "name", image: "Not A Name", policy: v1.PullNever, reason: ReasonInvalidName, events: []string{"Warning InspectFailed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, true, func(b *bench) {
				image := tt.image
				if image == "" {
					image = img
				}
				if tt.present {
					b.rt.AddImage(image, fake.Program{})
				}
				if tt.pullable {
					b.rt.SetPull(image, fake.Pull{})
				}
				if tt.reason != "" {
					b.fails("a", image, tt.policy, tt.reason)
				} else {
					b.works("a", image, tt.policy)
				}
				if n := b.rt.Count("PullImage"); n != tt.pulls {
					t.Errorf("%d pulls, want %d", n, tt.pulls)
				}
				if diff := cmp.Diff(tt.events, b.reasons()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestInspectError(t *testing.T) {
	run(t, true, func(b *bench) {
		b.rt.Inject("ImageStatus", fake.Fault{Err: errors.New("disk on fire")})
		if e := b.fails("a", "localhost/app:1", v1.PullIfNotPresent, ReasonInspect); !strings.Contains(e.Message, "disk on fire") {
			t.Errorf("the message hides the cause: %s", e.Message)
		}
	})
}

func TestRuntimesReasons(t *testing.T) {
	for cause, reason := range map[string]string{
		"RegistryUnavailable: no route to host":        ReasonRegistryUnavailable,
		"SignatureValidationFailed: no signature":      ReasonSignatureInvalid,
		"manifest unknown":                             ReasonPull,
		"failed to pull: RegistryUnavailable: timeout": ReasonRegistryUnavailable,
	} {
		t.Run(cause, func(t *testing.T) {
			run(t, true, func(b *bench) {
				b.rt.SetPull("localhost/app:1", fake.Pull{Err: errors.New(cause)})
				b.fails("a", "localhost/app:1", v1.PullAlways, reason)
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	run(t, true, func(b *bench) {
		const img = "localhost/app:1"
		b.rt.SetPull(img, fake.Pull{Err: errors.New("manifest unknown")})
		for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
			delay := time.Duration(seconds) * time.Second
			if e := b.fails("a", img, v1.PullIfNotPresent, ReasonPull); e.RetryAfter != delay {
				t.Fatalf("the wait is %v, want %v", e.RetryAfter, delay)
			}
			time.Sleep(delay - time.Second)
			e := b.fails("a", img, v1.PullIfNotPresent, ReasonBackOff)
			if e.RetryAfter != time.Second {
				t.Errorf("what is left is %v, want 1s", e.RetryAfter)
			}
			if !strings.Contains(e.Message, "manifest unknown") {
				t.Errorf("the message hides the cause: %s", e.Message)
			}
			time.Sleep(e.RetryAfter)
		}
		if n := b.rt.Count("PullImage"); n != 7 {
			t.Errorf("%d pulls, want 7", n)
		}

		b.rt.SetPull("localhost/other:1", fake.Pull{})
		b.fails("a", img, v1.PullIfNotPresent, ReasonPull)
		b.works("a", "localhost/other:1", v1.PullIfNotPresent) // another image does not wait
		b.fails("b", img, v1.PullIfNotPresent, ReasonPull)     // nor does another pod

		b.rt.SetPull(img, fake.Pull{})
		b.fails("a", img, v1.PullIfNotPresent, ReasonBackOff)
		time.Sleep(backoffMax)
		b.works("a", img, v1.PullIfNotPresent)
		b.rt.DropImage(img)
		b.rt.SetPull(img, fake.Pull{Err: errors.New("gone")})
		if e := b.fails("a", img, v1.PullIfNotPresent, ReasonPull); e.RetryAfter != backoffFirst {
			t.Errorf("after a success the wait is %v, want %v", e.RetryAfter, backoffFirst)
		}
	})
}

func TestBackoffIsForgotten(t *testing.T) {
	run(t, true, func(b *bench) {
		b.fails("a", "localhost/app:1", v1.PullAlways, ReasonPull)
		time.Sleep(backoffFirst)
		b.fails("a", "localhost/app:1", v1.PullAlways, ReasonPull)
		time.Sleep(backoffReset + time.Second)
		if e := b.fails("a", "localhost/app:1", v1.PullAlways, ReasonPull); e.RetryAfter != backoffFirst {
			t.Errorf("the wait is %v, want %v again", e.RetryAfter, backoffFirst)
		}
		for i := range 100 {
			b.fails(fmt.Sprint(i), "localhost/app:1", v1.PullAlways, ReasonPull)
		}
		time.Sleep(backoffReset + time.Second)
		b.fails("a", "localhost/app:1", v1.PullAlways, ReasonPull)
		if n := len(b.puller.backoffs); n != 1 {
			t.Errorf("%d waits are remembered, want 1", n)
		}
	})
}

func TestNoBackoffWithoutRuntime(t *testing.T) {
	run(t, true, func(b *bench) {
		b.rt.SetPull("localhost/app:1", fake.Pull{})
		b.rt.Stop()
		e := b.fails("a", "localhost/app:1", v1.PullAlways, ReasonPull)
		if e.RetryAfter != 0 || !errors.Is(e, container.ErrUnavailable) {
			t.Errorf("a runtime that is away: wait %v, cause %v", e.RetryAfter, e.Err)
		}
		b.rt.Start()
		b.works("a", "localhost/app:1", v1.PullAlways)
	})
}

// TestOnePull shows that pods that want one image wait for one pull.
func TestOnePull(t *testing.T) {
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprintf("fails: %v", fail), func(t *testing.T) {
			run(t, true, func(b *bench) {
				pull := fake.Pull{Delay: time.Minute}
				if fail {
					pull.Err = errors.New("broken")
				}
				b.rt.SetPull("busybox", pull)
				var wg sync.WaitGroup
				for i, name := range []string{"busybox", "busybox:latest", "docker.io/library/busybox"} {
					wg.Go(func() {
						if fail {
							b.fails(fmt.Sprint(i), name, v1.PullAlways, ReasonPull)
						} else {
							b.works(fmt.Sprint(i), name, v1.PullAlways)
						}
					})
				}
				wg.Wait()
				if n := b.rt.Count("PullImage"); n != 1 {
					t.Errorf("%d pulls, want 1", n)
				}
			})
		})
	}
}

func TestSerialize(t *testing.T) {
	for serialize, want := range map[bool]time.Duration{true: 3 * time.Minute, false: time.Minute} {
		t.Run(fmt.Sprint(serialize), func(t *testing.T) {
			run(t, serialize, func(b *bench) {
				begun := time.Now()
				var wg sync.WaitGroup
				for i := range 3 {
					image := fmt.Sprintf("localhost/app:%d", i)
					b.rt.SetPull(image, fake.Pull{Delay: time.Minute})
					wg.Go(func() { b.works("a", image, v1.PullIfNotPresent) })
				}
				wg.Wait()
				if took := time.Since(begun); took != want {
					t.Errorf("three pulls took %v, want %v", took, want)
				}
			})
		})
	}
}

// TestStoppedPod shows that a stopped pod stops waiting, and does not cancel
// the pull for the pods that still need the image.
func TestStoppedPod(t *testing.T) {
	run(t, true, func(b *bench) {
		b.rt.SetPull("localhost/app:1", fake.Pull{Delay: time.Minute})
		b.rt.SetPull("localhost/other:1", fake.Pull{Delay: time.Minute})
		first, stopFirst := context.WithCancel(b.Context())
		second, stopSecond := context.WithCancel(b.Context())
		queued, stopQueued := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		stopped := func(ctx context.Context, uid, image string) {
			wg.Go(func() {
				ref, err := b.ensure(ctx, uid, image, v1.PullIfNotPresent)
				if !errors.Is(err, context.Canceled) || errors.As(err, new(*Error)) {
					t.Errorf("the stopped pod %s got %q, %v", uid, ref, err)
				}
			})
			synctest.Wait()
		}
		stopped(first, "first", "localhost/app:1")
		stopped(second, "second", "localhost/app:1")
		wg.Go(func() { b.works("third", "localhost/app:1", v1.PullIfNotPresent) })
		synctest.Wait()
		stopped(queued, "queued", "localhost/other:1")

		time.Sleep(30 * time.Second)
		stopQueued()
		stopSecond()
		synctest.Wait()
		stopFirst() // which pulls
		wg.Wait()
		if n := b.rt.Count("PullImage"); n != 2 {
			t.Errorf("%d pulls, want 2: the one that was stopped and the one that took over", n)
		}
		b.works("first", "localhost/app:1", v1.PullIfNotPresent) // no backoff from being stopped
	})
}

// TestHungRuntime shows that a stop ends a hung pull, and that the pull blocks
// no other afterwards.
func TestHungRuntime(t *testing.T) {
	run(t, true, func(b *bench) {
		b.rt.SetPull("localhost/app:1", fake.Pull{})
		b.rt.Hang()
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
		defer cancel()
		if _, err := b.ensure(ctx, "a", "localhost/app:1", v1.PullAlways); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the hung pull ended with %v", err)
		}
		b.rt.Resume()
		b.works("b", "localhost/app:1", v1.PullAlways)
	})
}
