package listwatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// lab is a Follower of the nodes' podCIDR, in virtual time.
type lab struct {
	*apiservertest.Server
	*Reflector[string]
	t       *testing.T
	log     bytes.Buffer
	changed int
	refused []string
}

func inLab(t *testing.T, before func(*apiservertest.Server), test func(l *lab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, Server: apiservertest.New()}
		var err error
		l.Reflector, err = New(Config[string]{
			API: l.Server, Resource: apiclient.Nodes, List: func() runtime.Object { return &v1.NodeList{} },
			Keep: func(o runtime.Object) (string, bool) {
				n, ok := o.(*v1.Node)
				return n.Spec.PodCIDR, ok && n.Spec.PodCIDR != ""
			},
			Same: func(a, b string) bool { return a == b }, Changed: func() { l.changed++ },
			Fields: "metadata.name!=own", Remedy: "grant it",
			OnForbidden: func(text string) { l.refused = append(l.refused, text) },
			Log:         slog.New(slog.NewTextHandler(&l.log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if before != nil {
			before(l.Server)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		test(l)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if n := l.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		for _, c := range l.Calls() {
			if c.Verb == "watch" && (c.List.ResourceVersion == "" || c.List.TimeoutSeconds == nil || !c.List.AllowWatchBookmarks) {
				t.Errorf("watch with %+v", c.List)
			}
		}
	})
}

func node(name, cidr string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDR: cidr}}
}

// expect compares the current objects, and the number of changes since its last
// call.
func (l *lab) expect(changed int, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	known := l.View(func(all map[Key]string) {
		for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) {
			got = append(got, key.Name+"="+all[key])
		}
	})
	if !known {
		got = []string{"unknown"}
	}
	if !slices.Equal(got, want) || l.changed != changed {
		l.t.Errorf("known %q, told %d times; want %q, %d times", got, l.changed, want, changed)
	}
	l.changed = 0
}

// made compares the requests since the last time.
func (l *lab) made(want ...string) {
	l.t.Helper()
	synctest.Wait()
	if got := l.Made(); !slices.Equal(got, want) {
		l.t.Errorf("calls %q, want %q", got, want)
	}
}

func TestFollow(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) {
		s.Put(node("a", "1"))
		s.Put(node("b", "2"))
		s.Put(node("none", ""))
	}, func(l *lab) {
		l.expect(1, "a=1", "b=2")
		l.Put(node("c", "3"))
		l.expect(1, "a=1", "b=2", "c=3")
		l.Put(node("c", "3")) // a heartbeat
		l.Put(node("none", ""))
		l.expect(0, "a=1", "b=2", "c=3")
		l.Put(node("c", ""))
		l.Remove(apiclient.Nodes, "", "a")
		l.expect(2, "b=2")
		l.made("list nodes", "watch nodes")
		for _, c := range l.Calls() {
			if c.List.FieldSelector != "metadata.name!=own" {
				t.Errorf("asked for %+v", c)
			}
		}
		// What comes again, or is of no meaning, changes nothing.
		for _, e := range []watch.Event{
			{Type: watch.Deleted, Object: at(node("b", "2"), "3")},
			{Type: watch.Modified, Object: at(node("b", "9"), "3")},
			{Type: watch.Added, Object: at(node("d", "9"), "")},
			{Type: watch.Added, Object: at(node("d", "9"), "0")},
			{Type: watch.Bookmark, Object: at(&v1.Node{}, "20")},
			{Type: watch.Modified, Object: at(node("b", "9"), "20")},
		} {
			l.Send(e)
		}
		l.expect(0, "b=2")
	})
}

func at(n *v1.Node, version string) *v1.Node {
	n.ResourceVersion = version
	return n
}

func TestPages(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) {
		for i := range 2*page + 1 {
			s.Put(node(fmt.Sprintf("n%04d", i), "1"))
		}
	}, func(l *lab) {
		n := 0
		l.View(func(all map[Key]string) { n = len(all) })
		if n != 2*page+1 || l.changed != 1 {
			t.Errorf("%d objects, told %d times", n, l.changed)
		}
		l.made("list nodes", "list nodes", "list nodes", "watch nodes")
	})
}

// TestPagesThatExpire has an API server that has dropped the version of the list before
// its second page.
func TestPagesThatExpire(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) {
		for i := range 2*page + 1 {
			s.Put(node(fmt.Sprintf("n%04d", i), "1"))
		}
		s.SetFaults(apiservertest.Faults{Before: func(_ context.Context, c apiservertest.Call) error {
			if c.List.Continue != "" {
				s.Remove(apiclient.Nodes, "", "n0000") // of the first page
				return apierrors.NewResourceExpired("the continue parameter is too old")
			}
			return nil
		}})
	}, func(l *lab) {
		time.Sleep(time.Minute)
		n := 0
		l.View(func(all map[Key]string) { n = len(all) })
		if n != 2*page || l.changed != 1 || l.log.Len() > 0 {
			t.Errorf("%d objects, told %d times, log %s", n, l.changed, l.log.String())
		}
		l.made("list nodes", "list nodes", "list nodes", "watch nodes")
	})
}

// TestResume covers how the Follower continues after a watch has ended.
func TestResume(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) { s.Put(node("a", "1")) }, func(l *lab) {
		time.Sleep(2 * time.Second)
		l.Made()
		for _, step := range []struct {
			name string
			do   func()
			want []string
		}{
			{"cut", func() { l.Cut() }, []string{"watch nodes"}},
			{"the end of a watch", func() { time.Sleep(maxWatch + overtime) }, nil},
			{"bookmark of the past", func() {
				l.Send(watch.Event{Type: watch.Bookmark, Object: at(&v1.Node{}, "1")})
			}, []string{"list nodes", "watch nodes"}},
			{"expired", func() {
				l.Cut()
				l.Put(node("b", "2"))
				l.Compact()
			}, []string{"watch nodes", "list nodes", "watch nodes"}},
			{"torn", func() {
				l.Send(torn)
			}, []string{"watch nodes"}},
			{"torn twice", func() {
				l.Send(torn)
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				l.Send(torn)
				time.Sleep(100 * time.Millisecond)
				l.Send(torn)
			}, nil},
		} {
			step.do()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := l.Made(); step.want != nil && !slices.Equal(got, step.want) {
				t.Errorf("%s: calls %q, want %q", step.name, got, step.want)
			}
			if l.outage.Active() {
				t.Errorf("%s: %s", step.name, l.log.String())
			}
		}
		l.expect(2, "a=1", "b=2")
	})
}

var torn = watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 500, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ClientWatchDecoding"}}}}}

// TestTornAgain sends an event that cannot be decoded at the begin of each watch.
func TestTornAgain(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) { s.Put(node("a", "1")) }, func(l *lab) {
		l.Send(torn)
		for l.Watches() != 1 || len(l.Calls()) != 3 {
			time.Sleep(50 * time.Millisecond)
		}
		l.Send(torn)
		time.Sleep(10 * time.Second)
		l.made("list nodes", "watch nodes", "watch nodes", "list nodes", "watch nodes")
	})
}

func TestOutage(t *testing.T) {
	inLab(t, func(s *apiservertest.Server) { s.Fail(io.EOF) }, func(l *lab) {
		time.Sleep(10 * time.Minute)
		l.expect(0, "unknown")
		if n := len(l.Made()); n < 20 || n > 50 {
			t.Errorf("tried %d times in 10 minutes", n)
		}
		// A server that lists, but does not let watch, is not listed all the time.
		l.SetFaults(apiservertest.Faults{Before: func(_ context.Context, c apiservertest.Call) error {
			if c.Verb == "watch" {
				return apierrors.NewBadRequest("no watches")
			}
			return nil
		}})
		time.Sleep(10 * time.Minute)
		l.expect(1)
		if n := len(l.Made()); n > 100 {
			t.Errorf("tried %d times in 10 minutes", n)
		}
		l.Fail(nil)
		l.Put(node("a", "1"))
		time.Sleep(time.Minute)
		l.expect(1, "a=1")
		l.Fail(io.EOF)
		l.Cut()
		time.Sleep(time.Minute)
		l.expect(0, "a=1")
		if n := strings.Count(l.log.String(), "cannot list and watch resource"); n != 2 || strings.Count(l.log.String(), "listing and watching resource again") != 1 {
			t.Errorf("log %s", l.log.String())
		}
	})
}

func TestRefused(t *testing.T) {
	inLab(t, (*apiservertest.Server).Refuse, func(l *lab) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(l.Made()); n < 30 || n > 80 {
			t.Errorf("tried %d times in an hour", n)
		}
		if n := strings.Count(l.log.String(), "WARN"); n != 1 || len(l.refused) != 1 {
			t.Errorf("refused %q, log %s", l.refused, l.log.String())
		}
		if p := l.Problem(); !strings.Contains(p, "grant it") || !strings.Contains(p, "forbidden") {
			t.Errorf("problem %q", p)
		}
		l.Fail(nil)
		time.Sleep(refusedMax + 2*time.Second)
		l.expect(1)
		if l.Problem() != "" || len(l.refused) != 1 {
			t.Errorf("problem %q, refused %q", l.Problem(), l.refused)
		}
	})
}
