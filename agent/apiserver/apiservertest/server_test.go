package apiservertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// api is what *apiclient.Client and Client have in common.
type api interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
	Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error
}

func podNamed(name, node string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{NodeName: node}}
}

// both runs a test with the client of the server, and with the real one over HTTP.
func both(t *testing.T, test func(t *testing.T, s *Server, c api)) {
	t.Run("calls", func(t *testing.T) {
		s := New()
		test(t, s, s.As("me"))
	})
	t.Run("HTTP", func(t *testing.T) {
		s := New()
		test(t, s, s.Dial(t, apiclient.Config{}))
	})
}

func TestObjects(t *testing.T) {
	both(t, func(t *testing.T, s *Server, c api) {
		ctx := t.Context()
		var p v1.Pod
		if err := c.Create(ctx, apiclient.Pods, "ns", "", "", podNamed("a", "n"), &p); err != nil || p.UID == "" || p.ResourceVersion != "2" || p.Status.Phase != v1.PodPending {
			t.Fatalf("created %+v, %v", p, err)
		}
		if err := c.Create(ctx, apiclient.Pods, "ns", "", "", podNamed("a", "n"), nil); !apierrors.IsAlreadyExists(err) {
			t.Errorf("created again: %v", err)
		}
		patch := func(subresource string, kind types.PatchType, text string) error {
			p = v1.Pod{}
			return c.Patch(ctx, apiclient.Pods, "ns", "a", subresource, kind, []byte(text), &p)
		}
		const status = `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeName":"m"},"status":{"conditions":[{"type":"B","status":"True"}]}}`
		for range 2 {
			if err := patch("status", types.StrategicMergePatchType, status); err != nil || p.Labels["a"] != "1" || p.Spec.NodeName != "n" || len(p.Status.Conditions) != 1 {
				t.Errorf("status %+v, %v", p, err)
			}
		}
		if err := patch("", types.MergePatchType, `{"metadata":{"labels":{"a":null}},"status":{"phase":"Failed"}}`); err != nil || len(p.Labels) != 0 || p.Status.Phase != v1.PodPending {
			t.Errorf("patched %+v, %v", p, err)
		}
		if err := patch("status", types.MergePatchType, `{"metadata":{"uid":"x"}}`); !apierrors.IsInvalid(err) {
			t.Errorf("patch of another pod: %v", err)
		}
		other := types.UID("x")
		if err := c.Delete(ctx, apiclient.Pods, "ns", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
			t.Errorf("deleted another pod: %v", err)
		}
		if err := c.Delete(ctx, apiclient.Pods, "ns", "a", metav1.DeleteOptions{}); err != nil || *Stored[*v1.Pod](s, "ns", "a").DeletionGracePeriodSeconds != 30 {
			t.Errorf("deleted %+v, %v", All[*v1.Pod](s), err)
		}
		Update(s, "ns", "a", func(p *v1.Pod) { p.Finalizers = []string{"example.com/hold"} })
		for _, finalizers := range [][]string{{"example.com/hold"}, nil} {
			Update(s, "ns", "a", func(p *v1.Pod) { p.Finalizers = finalizers })
			if err := c.Delete(ctx, apiclient.Pods, "ns", "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				t.Error(err)
			}
			if kept := Stored[*v1.Pod](s, "ns", "a") != nil; kept != (finalizers != nil) {
				t.Errorf("with finalizers %q the pod is kept: %v", finalizers, kept)
			}
		}
		if err := c.Get(ctx, apiclient.Pods, "ns", "a", &p); !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) {
			t.Errorf("got what was deleted: %v", err)
		}
		if made := s.Made(); made[0] != "create pods/ns/a" || made[2] != "patch pods/ns/a/status" || made[len(made)-1] != "get pods/ns/a" {
			t.Errorf("requests %q", made)
		}
	})
}

func TestListAndWatch(t *testing.T) {
	both(t, func(t *testing.T, s *Server, c api) {
		ctx := t.Context()
		for i := range 5 {
			s.Put(podNamed(fmt.Sprint("p", i), []string{"m", "n"}[i%2]))
		}
		names := func(options metav1.ListOptions) (names []string, list v1.PodList) {
			if err := c.List(ctx, apiclient.Pods, "", options, &list); err != nil {
				t.Fatal(err)
			}
			for _, p := range list.Items {
				names = append(names, p.Name)
			}
			return names, list
		}
		options := metav1.ListOptions{Limit: 2, FieldSelector: "spec.nodeName=m"}
		got, list := names(options)
		if options.Continue = list.Continue; !slices.Equal(got, []string{"p0", "p2"}) || list.ResourceVersion != "6" {
			t.Errorf("the first page of version %s is %q", list.ResourceVersion, got)
		}
		if got, list = names(options); !slices.Equal(got, []string{"p4"}) || list.Continue != "" {
			t.Errorf("the second page is %q", got)
		}
		// The real client would repeat it as the response asks.
		if err := s.List(ctx, apiclient.Pods, "", metav1.ListOptions{ResourceVersion: "7"}, &list); !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("a list of the future: %v", err)
		}
		if err := c.List(ctx, apiclient.Pods, "", metav1.ListOptions{FieldSelector: "spec.x=y"}, &list); !apierrors.IsBadRequest(err) {
			t.Errorf("a list by an unknown field: %v", err)
		}
		seconds := int64(3600)
		open := func(version string) watch.Interface {
			w, err := c.Watch(ctx, apiclient.Pods, "ns", metav1.ListOptions{ResourceVersion: version, FieldSelector: "spec.nodeName=m", TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
			return w
		}
		event := func(w watch.Interface) string {
			e := <-w.ResultChan()
			if p, ok := e.Object.(*v1.Pod); ok {
				return fmt.Sprint(e.Type, " ", p.Name, " ", p.ResourceVersion)
			}
			return fmt.Sprint(e.Type, " ", apierrors.IsResourceExpired(apierrors.FromObject(e.Object)))
		}
		w := open("4")
		s.Put(podNamed("p0", "n")) // it leaves the selection
		s.Put(podNamed("p2", "m"))
		s.Remove(apiclient.Pods, "ns", "p4")
		s.Send(watch.Event{Type: watch.Bookmark, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "99"}}})
		for _, want := range []string{"ADDED p4 6", "DELETED p0 7", "MODIFIED p2 8", "DELETED p4 9", "BOOKMARK  99"} {
			if got := event(w); got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		}
		s.Cut()
		if e, open := <-w.ResultChan(); open || s.Watches() != 0 {
			t.Errorf("event %v of a watch that was cut", e)
		}
		s.Compact()
		if got := event(open("8")); got != "ERROR true" {
			t.Errorf("event %q of a watch from a version that is too old", got)
		}
		if got := event(open("")); got != "ADDED p2 8" {
			t.Errorf("event %q of a watch without a version", got)
		}
	})
}

func TestFaults(t *testing.T) {
	both(t, func(t *testing.T, s *Server, c api) {
		var p v1.Pod
		s.SetFaults(Faults{After: func(context.Context, Call) error { return ErrAway }})
		if err := c.Create(t.Context(), apiclient.Pods, "ns", "", "", podNamed("a", "n"), &p); err == nil || Stored[*v1.Pod](s, "ns", "a") == nil {
			t.Errorf("a response that is lost: %v", err)
		}
		s.SetFaults(Faults{Before: func(ctx context.Context, _ Call) error { <-ctx.Done(); return ctx.Err() }})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Get(ctx, apiclient.Pods, "ns", "a", &p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that hangs: %v", err)
		}
		s.Refuse()
		if err := c.Get(t.Context(), apiclient.Pods, "ns", "a", &p); !apierrors.IsForbidden(err) {
			t.Errorf("a server that refuses: %v", err)
		}
		refused := 0
		s.SetFaults(Faults{Before: func(context.Context, Call) error {
			if refused++; refused == 1 {
				return apierrors.NewTooManyRequests("later", 1)
			}
			return nil
		}})
		err := c.Get(t.Context(), apiclient.Pods, "ns", "a", &p)
		if seconds, retry := apierrors.SuggestsClientDelay(err); err != nil && (!retry || seconds != 1) || err == nil && refused != 2 {
			t.Errorf("a busy server: %v after %d requests", err, refused)
		}
	})
}

func TestEndOfAWatch(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute, -1: 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := New()
			s.SetFaults(Faults{WatchLimit: limit, Latency: time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Second)
			defer cancel()
			seconds, began := int64(3600), time.Now()
			w, err := s.Watch(ctx, apiclient.Nodes, "", metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			bookmarks := 0
			for e := range w.ResultChan() {
				if n, ok := e.Object.(*v1.Node); ok && e.Type == watch.Bookmark && n.ResourceVersion == "1" {
					bookmarks++
				}
			}
			if lasted := time.Since(began) - time.Second; lasted != want || bookmarks != 1 && limit >= 0 {
				t.Errorf("a watch lasted %v, with %d bookmarks", lasted, bookmarks)
			}
		})
	}
}
