package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
)

// followed is an API source that runs against a cluster.
type followed struct {
	*cluster
	log    logged
	events *event.Recorder

	mu   sync.Mutex
	sets []string // each as cluster.state
	last []*v1.Pod
	alls []string // names
	hold chan struct{}
}

// apiPod is a pod of node n.
func apiPod(name, uid, tag string) *v1.Pod {
	return with(newPod(name, types.UID(uid), tag), func(p *v1.Pod) { p.Spec.NodeName = "n" })
}

// following runs play in virtual time beside a source that follows c.
func following(t *testing.T, start func(*testing.T) *cluster, play func(*followed)) {
	t.Helper()
	followingWith(t, func(*source.APIConfig) {}, start, play)
}

// followingWith is following with a change of the source's configuration.
func followingWith(t *testing.T, change func(*source.APIConfig), start func(*testing.T) *cluster, play func(*followed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &followed{cluster: start(t)}
		log := f.log.logger()
		f.events = event.NewRecorder(log)
		config := source.APIConfig{API: f.cluster, NodeName: "n", All: f.all, Log: log, Events: f.events}
		change(&config)
		a, err := source.NewAPI(config)
		if err != nil {
			t.Fatal(err)
		}
		stop := errors.New("the test is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := a.Run(ctx, f.set); !errors.Is(err, stop) {
				t.Errorf("Run ended with %v", err)
			}
		}()
		synctest.Wait()
		play(f)
		cancel(stop)
		<-ended
		f.Cut()
		f.check()
	})
}

func (f *followed) all(pods []*v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := ""
	for _, p := range pods {
		names += p.Name + " "
	}
	f.alls = append(f.alls, strings.TrimSpace(names))
}

func (f *followed) set(ctx context.Context, wanted source.PodSet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wanted.Partial {
		f.t.Error("a partial set")
	}
	var state []string
	for _, p := range wanted.Pods {
		state = append(state, shown(p))
	}
	slices.Sort(state)
	f.sets, f.last = append(f.sets, fmt.Sprint(state)), wanted.Pods
	if hold := f.hold; hold != nil {
		f.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
		}
		f.mu.Lock()
	}
}

// taken is the sets since the last time, after everything settled.
func (f *followed) taken() []string {
	f.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	sets := f.sets
	f.sets = nil
	return sets
}

// expect compares the sets since the last time.
func (f *followed) expect(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.taken()); diff != "" {
		f.t.Errorf("sets (-want +got):\n%s", diff)
	}
}

// lines counts the occurrences of a text in the log.
func (f *followed) lines(text string) int { return strings.Count(f.log.String(), text) }

func TestAPIFollowsPods(t *testing.T) {
	one := func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }
	following(t, one, func(f *followed) {
		f.expect("[a/1=1]")
		kept := f.last[0]
		f.Put(apiPod("b", "2", "1"))
		f.expect("[a/1=1 b/2=1]")
		f.Put(apiPod("b", "2", "2"))
		f.expect("[a/1=1 b/2=2]")
		if !slices.Contains(f.last, kept) {
			t.Error("a pod that did not change has another pointer")
		}
		// One name, another UID.
		now := metav1.Now()
		f.Put(with(apiPod("b", "2", "2"), func(p *v1.Pod) { p.DeletionTimestamp = &now }))
		f.expect("[a/1=1 b/2=2 ending]")
		f.remove("2")
		f.Put(apiPod("b", "3", "2"))
		if sets := f.taken(); sets[len(sets)-1] != "[a/1=1 b/3=2]" {
			t.Errorf("sets %q", sets)
		}
		// A mirror is told to All alone.
		f.alls = nil
		f.Put(with(apiPod("m", "4", "1"), func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} }))
		f.expect()
		if diff := cmp.Diff([]string{"a b m"}, f.alls); diff != "" {
			t.Errorf("told to All (-want +got):\n%s", diff)
		}
		f.Send(watch.Event{Type: watch.Added, Object: with(apiPod("elsewhere", "5", "1"), func(p *v1.Pod) { p.Spec.NodeName, p.ResourceVersion = "other", "15" })})
		f.remove("1")
		f.remove("3")
		f.taken()
		if len(f.last) != 0 || f.last == nil {
			t.Errorf("the last set is %v", f.last)
		}
		if diff := cmp.Diff([]string{"list 0", "watch 8"}, f.made()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestAPISlimsPods(t *testing.T) {
	p := with(apiPod("a", "1", "1"), func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "x": "y"}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		p.OwnerReferences = []metav1.OwnerReference{{Name: "rs"}}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{}}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{}}
		p.Status.Phase = v1.PodRunning
	})
	following(t, func(t *testing.T) *cluster { return newCluster(t, p) }, func(f *followed) {
		f.taken()
		got := f.last[0]
		if got.ManagedFields != nil || got.Spec.TopologySpreadConstraints != nil || got.Spec.Affinity.PodAffinity != nil {
			t.Errorf("what nobody reads is kept: %+v", got)
		}
		if got.Spec.Affinity.NodeAffinity == nil || got.OwnerReferences == nil || got.Status.Phase != v1.PodRunning || got.Spec.SecurityContext == nil {
			t.Errorf("what is read is missing: %+v", got)
		}
		if diff := cmp.Diff(map[string]string{"kubernetes.io/config.source": "api", "x": "y"}, got.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	})
}

// TestAPICutAnywhere breaks the watch in every way after every step of a
// history: the sets are states that the cluster had, in their order, and the
// last is the cluster's.
func TestAPICutAnywhere(t *testing.T) {
	now := metav1.Now()
	steps := []func(*cluster){
		func(c *cluster) { c.Put(apiPod("a", "1", "1")) },
		func(c *cluster) { c.Put(apiPod("b", "2", "1")) },
		func(c *cluster) { c.Put(apiPod("a", "1", "2")) },
		func(c *cluster) {
			c.Put(with(apiPod("a", "1", "2"), func(p *v1.Pod) { p.DeletionTimestamp = &now }))
		},
		func(c *cluster) { c.remove("1") },
		func(c *cluster) { c.Put(apiPod("a", "3", "1")) },
		func(c *cluster) { c.remove("2") },
	}
	broken := &metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ClientWatchDecoding"}}}}
	gone := apierrors.NewResourceExpired("gone").ErrStatus
	inner := apierrors.NewInternalError(errors.New("etcd")).ErrStatus
	failure := func(s *metav1.Status) watch.Event { return watch.Event{Type: watch.Error, Object: s} }
	for _, tt := range []struct {
		name  string
		cut   func(*followed)
		after func(*followed)
	}{
		{"closed", func(f *followed) { f.Cut() }, nil},
		{"torn", func(f *followed) { f.Cut(failure(broken)) }, nil},
		{"gone", func(f *followed) { f.Cut(failure(&gone)) }, nil},
		{"error", func(f *followed) { f.Cut(failure(&inner)) }, nil},
		{"another kind", func(f *followed) { f.Send(watch.Event{Type: watch.Added, Object: &v1.Secret{}}) }, nil},
		{"compacted", func(f *followed) { f.Cut(); f.Put(apiPod("z", "9", "1")); f.Compact() }, nil},
		{"down", func(f *followed) {
			f.failing(func(string) error { return io.ErrUnexpectedEOF })
			f.Cut()
		}, func(f *followed) { f.failing(nil) }},
		{"watches refused", func(f *followed) {
			f.failing(func(call string) error {
				if strings.HasPrefix(call, "watch") {
					return apierrors.NewInternalError(errors.New("no"))
				}
				return nil
			})
			f.Cut()
		}, func(f *followed) { f.failing(nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := range len(steps) + 1 {
				following(t, func(t *testing.T) *cluster { return newCluster(t) }, func(f *followed) {
					for i, step := range steps {
						if i == at {
							tt.cut(f)
						}
						step(f.cluster)
						if i%2 == 0 {
							time.Sleep(300 * time.Millisecond)
						}
					}
					if at == len(steps) {
						tt.cut(f)
					}
					if time.Sleep(time.Minute); tt.after != nil {
						tt.after(f)
					}
					time.Sleep(time.Minute)
					f.inOrder(at)
				})
			}
		})
	}
}

// inOrder checks that the sets are states of the cluster in their order.
func (f *followed) inOrder(at int) {
	f.t.Helper()
	sets := f.taken()
	from := 0
	for i, set := range sets {
		n := slices.Index(f.states[from:], set)
		if n < 0 {
			f.t.Fatalf("cut at %d: set %d of %q is no state after those before; states %q", at, i, sets, f.states)
		}
		from += n
	}
	if len(sets) == 0 || sets[len(sets)-1] != f.states[len(f.states)-1] {
		f.t.Errorf("cut at %d: the last of the sets %q is not %s", at, sets, f.states[len(f.states)-1])
	}
}

func TestAPINothingBeforeTheFirstList(t *testing.T) {
	for name, fail := range map[string]func(string) error{
		"no link":      func(string) error { return io.EOF },
		"no right":     func(string) error { return apierrors.NewForbidden(v1.Resource("pods"), "", nil) },
		"bad request":  func(string) error { return apierrors.NewBadRequest("no") },
		"overload":     func(string) error { return apierrors.NewTooManyRequests("later", 1) },
		"broken store": func(string) error { return apierrors.NewInternalError(errors.New("etcd")) },
	} {
		t.Run(name, func(t *testing.T) {
			following(t, func(t *testing.T) *cluster {
				c := newCluster(t, apiPod("a", "1", "1"))
				c.failing(fail)
				return c
			}, func(f *followed) {
				time.Sleep(24 * time.Hour)
				f.expect()
				if n := len(f.made()); n < 2800 || n > 6000 {
					t.Errorf("%d calls in a day", n)
				}
				f.failing(nil)
				time.Sleep(time.Minute)
				f.expect("[a/1=1]")
				if f.lines("cannot list or watch") != 1 || f.lines("resumed watching") != 1 || f.lines("\n") != 2 {
					t.Errorf("log:\n%s", f.log.String())
				}
			})
		})
	}
}

func TestAPIIdle(t *testing.T) {
	following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
		f.expect("[a/1=1]")
		f.made()
		time.Sleep(24 * time.Hour)
		f.expect()
		calls := f.made()
		if n := len(calls); n < 24*6 || n > 24*12 {
			t.Errorf("%d calls in a day", n)
		}
		for _, call := range calls {
			if call != "watch 8" {
				t.Errorf("an idle source calls %q", call)
			}
		}
		if f.log.String() != "" {
			t.Errorf("log:\n%s", f.log.String())
		}
	})
}

// TestAPIWatchesThatEnd covers watches that a proxy ends every minute, and
// watches that end immediately.
func TestAPIWatchesThatEnd(t *testing.T) {
	for _, tt := range []struct {
		after       time.Duration
		most, lines int
	}{{0, 150, 1}, {time.Second, 150, 1}, {time.Minute, 62, 0}} {
		t.Run(tt.after.String(), func(t *testing.T) {
			following(t, func(t *testing.T) *cluster {
				c := newCluster(t)
				c.SetFaults(apiservertest.Faults{WatchLimit: max(tt.after, 1)})
				return c
			}, func(f *followed) {
				time.Sleep(time.Hour)
				if n := len(f.made()); n > tt.most+100*tt.lines || n < 50 {
					t.Errorf("%d calls in an hour", n)
				}
				if n := f.lines("\n"); n != tt.lines {
					t.Errorf("%d lines, want %d:\n%s", n, tt.lines, f.log.String())
				}
			})
		})
	}
}

func TestAPIManyChanges(t *testing.T) {
	following(t, func(t *testing.T) *cluster { return newCluster(t) }, func(f *followed) {
		f.expect("[]")
		for i := range 5000 {
			f.Put(apiPod("a", "1", fmt.Sprint(i)))
		}
		if sets := f.taken(); len(sets) > 2 || sets[len(sets)-1] != "[a/1=4999]" {
			t.Errorf("sets %q", sets)
		}
		// For ten seconds, one each millisecond.
		for i := range 10000 {
			f.Put(apiPod("a", "1", fmt.Sprint(i)))
			time.Sleep(time.Millisecond)
		}
		if sets := f.taken(); len(sets) > 102 || len(sets) < 90 || sets[len(sets)-1] != "[a/1=9999]" {
			t.Errorf("%d sets in ten seconds, the last %q", len(sets), sets[len(sets)-1])
		}
	})
}

func TestAPISetThatHangs(t *testing.T) {
	following(t, func(t *testing.T) *cluster { return newCluster(t) }, func(f *followed) {
		f.expect("[]")
		f.mu.Lock()
		f.hold = make(chan struct{})
		f.mu.Unlock()
		for i := range 1000 {
			f.Put(apiPod("a", "1", fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		close(f.hold)
		f.expect("[a/1=0]", "[a/1=999]")
		if calls := f.made(); slices.ContainsFunc(calls[1:], func(call string) bool { return strings.HasPrefix(call, "list") }) {
			t.Errorf("calls %q", calls)
		}
		// It ends although a set hangs.
		f.mu.Lock()
		f.hold = make(chan struct{})
		f.mu.Unlock()
		f.Put(apiPod("a", "1", "x"))
		f.expect("[a/1=x]")
	})
}

func TestNewAPIRefuses(t *testing.T) {
	if _, err := source.NewAPI(source.APIConfig{}); err == nil {
		t.Error("an empty configuration is taken")
	}
}
