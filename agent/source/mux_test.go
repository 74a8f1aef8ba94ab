package source_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
)

// newPod is a pod with its image's tag as the only content.
func newPod(name string, uid types.UID, tag string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example.com/main:" + tag}}},
	}
}

func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

// text is an update as "OP source: uid=tag uid=tag".
func text(u source.Update) string {
	parts := []string{string(u.Op) + " " + u.Source + ":"}
	for _, p := range u.Pods {
		_, tag, _ := strings.Cut(p.Spec.Containers[0].Image, ":")
		parts = append(parts, string(p.UID)+"="+tag)
	}
	return strings.Join(parts, " ")
}

// warnings are the reasons and messages of the recorder's events.
func warnings(r *event.Recorder) []string {
	var all []string
	for _, e := range r.Recent() {
		for range e.Count {
			all = append(all, e.Reason+": "+e.Message)
		}
	}
	return all
}

func TestMux(t *testing.T) {
	type set struct {
		source string
		pods   []*v1.Pod
		want   []string
		warn   int // events so far
	}
	now := metav1.NewTime(time.Unix(1e9, 0))
	deleting := func(p *v1.Pod) { p.DeletionTimestamp = &now }
	for _, tt := range []struct {
		name string
		sets []set
	}{
		{"first", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x"), newPod("b", "2", "x")}, []string{"ADD file: 1=x 2=x"}, 0},
		}},
		{"first, empty", []set{
			{"file", nil, []string{"ADD file:"}, 0},
			{"file", nil, nil, 0},
			{"http", nil, []string{"ADD http:"}, 0},
		}},
		{"nothing new", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD file: 1=x"}, 0},
			{"file", []*v1.Pod{newPod("a", "1", "x")}, nil, 0},
		}},
		{"all at once", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x"), newPod("b", "2", "x"), newPod("c", "3", "x"), newPod("d", "4", "x")}, []string{"ADD file: 1=x 2=x 3=x 4=x"}, 0},
			{"file", []*v1.Pod{
				newPod("e", "5", "x"),
				newPod("b", "2", "y"),
				with(newPod("c", "3", "x"), deleting),
				with(newPod("d", "4", "x"), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }),
			}, []string{"REMOVE file: 1=x", "ADD file: 5=x", "UPDATE file: 2=y", "DELETE file: 3=x", "RECONCILE file: 4=x"}, 0},
		}},
		{"a changed static pod", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD file: 1=x"}, 0},
			{"file", []*v1.Pod{newPod("a", "2", "y")}, []string{"REMOVE file: 1=x", "ADD file: 2=y"}, 0},
		}},
		{"a new name under the old UID", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD file: 1=x"}, 0},
			{"file", []*v1.Pod{newPod("b", "1", "x")}, []string{"REMOVE file: 1=x", "ADD file: 1=x"}, 0},
		}},
		{"labels and annotations", []set{
			{"api", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD api: 1=x"}, 0},
			{"api", []*v1.Pod{with(newPod("a", "1", "x"), func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} })}, []string{"UPDATE api: 1=x"}, 0},
			{"api", []*v1.Pod{with(newPod("a", "1", "x"), func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} })}, []string{"UPDATE api: 1=x"}, 0},
			{"api", []*v1.Pod{with(newPod("a", "1", "x"), func(p *v1.Pod) {
				p.Annotations = map[string]string{"a": "b", pod.AnnotationSource: "file", pod.AnnotationFirstSeen: "z"}
			})}, nil, 0},
		}},
		{"a shorter grace period", []set{
			{"api", []*v1.Pod{with(newPod("a", "1", "x"), deleting)}, []string{"ADD api: 1=x"}, 0},
			{"api", []*v1.Pod{with(newPod("a", "1", "x"), func(p *v1.Pod) {
				deleting(p)
				p.DeletionGracePeriodSeconds = new(int64)
			})}, []string{"DELETE api: 1=x"}, 0},
		}},
		{"one name in one source", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x"), newPod("a", "2", "y")}, []string{"ADD file: 1=x"}, 1},
			{"file", []*v1.Pod{newPod("a", "1", "x"), newPod("a", "2", "y")}, nil, 1},
			{"file", []*v1.Pod{newPod("a", "2", "y")}, []string{"REMOVE file: 1=x", "ADD file: 2=y"}, 1},
			{"file", []*v1.Pod{newPod("a", "2", "y"), newPod("a", "1", "x")}, nil, 2},
		}},
		{"one UID in one source", []set{
			{"file", []*v1.Pod{newPod("a", "1", "x"), newPod("b", "1", "y")}, []string{"ADD file: 1=x"}, 1},
			{"file", []*v1.Pod{newPod("b", "1", "y")}, []string{"REMOVE file: 1=x", "ADD file: 1=y"}, 1},
		}},
		{"a UID that another source has", []set{
			{"http", []*v1.Pod{newPod("b", "2", "x")}, []string{"ADD http: 2=x"}, 0},
			{"file", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD file: 1=x"}, 0},
			{"http", []*v1.Pod{newPod("b", "1", "x")}, []string{"REMOVE http: 2=x"}, 1},
			{"file", nil, []string{"REMOVE file: 1=x", "ADD http: 1=x"}, 1},
		}},
		{"a new order in one source", []set{
			{"http", []*v1.Pod{newPod("a", "1", "x"), newPod("a", "2", "y")}, []string{"ADD http: 1=x"}, 1},
			{"http", []*v1.Pod{newPod("a", "2", "y"), newPod("a", "1", "x")}, nil, 1},
			{"http", []*v1.Pod{newPod("a", "3", "z"), newPod("a", "2", "y")}, []string{"REMOVE http: 1=x", "ADD http: 3=z"}, 1},
		}},
		{"one name in two sources", []set{
			{"http", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD http: 1=x"}, 0},
			{"file", []*v1.Pod{newPod("a", "2", "y")}, []string{"ADD file:"}, 1},
			{"http", []*v1.Pod{newPod("a", "3", "z")}, []string{"REMOVE http: 1=x", "ADD http: 3=z"}, 1},
			{"http", nil, []string{"REMOVE http: 3=z", "ADD file: 2=y"}, 1},
			{"http", []*v1.Pod{newPod("a", "3", "z")}, nil, 2},
		}},
		{"one pod in two sources", []set{
			{"restore", []*v1.Pod{newPod("a", "1", "x")}, []string{"RESTORE restore: 1=x"}, 0},
			{"api", []*v1.Pod{newPod("a", "1", "x")}, []string{"ADD api:"}, 1},
			{"restore", nil, []string{"RECONCILE api: 1=x"}, 1},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				events := event.NewRecorder(slog.New(slog.DiscardHandler))
				mux := source.NewMux(events)
				var got []string
				go func() {
					for {
						select {
						case u := <-mux.Updates():
							got = append(got, text(u))
						case <-ctx.Done():
							return
						}
					}
				}()
				for i, s := range tt.sets {
					got = nil
					mux.Set(ctx, s.source, source.PodSet{Pods: s.pods})
					synctest.Wait()
					if d := cmp.Diff(s.want, got); d != "" {
						t.Errorf("set %d: -want +got:\n%s", i, d)
					}
					if w := warnings(events); len(w) != s.warn {
						t.Errorf("set %d: events %q, want %d", i, w, s.warn)
					}
				}
			})
		})
	}
}

func TestMuxMarksPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler)))
		given := newPod("a", "1", "x")
		receive := func(p *v1.Pod) *v1.Pod {
			t.Helper()
			go mux.Set(t.Context(), "file", source.PodSet{Pods: []*v1.Pod{p}})
			u := <-mux.Updates()
			return u.Pods[0]
		}
		first := receive(given)
		seen := first.Annotations[pod.AnnotationFirstSeen]
		if at, err := time.Parse(time.RFC3339Nano, seen); err != nil || !at.Equal(time.Now()) {
			t.Errorf("first seen %q: %v", seen, err)
		}
		if pod.Source(first) != "file" {
			t.Errorf("source %q", pod.Source(first))
		}
		if len(given.Annotations) != 0 {
			t.Errorf("the source's pod got annotations %v", given.Annotations)
		}
		time.Sleep(time.Hour)
		if again := receive(newPod("a", "1", "y")).Annotations[pod.AnnotationFirstSeen]; again != seen {
			t.Errorf("first seen %q, then %q", seen, again)
		}
	})
}

func TestMuxReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler)), "file", "http")
		go mux.Set(t.Context(), "file", source.PodSet{Pods: []*v1.Pod{newPod("a", "1", "x")}})
		go mux.Set(t.Context(), "http", source.PodSet{})
		for i := range 2 {
			synctest.Wait()
			if mux.Ready() {
				t.Fatalf("ready after %d updates", i)
			}
			u := <-mux.Updates()
			synctest.Wait()
			if mux.Ready() {
				t.Fatalf("ready before update %d was acted on", i)
			}
			mux.Seen(u.Source)
			mux.Seen(u.Source)
		}
		if !mux.Ready() {
			t.Error("not ready after both")
		}
	})
	if !source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler))).Ready() {
		t.Error("not ready with no source to wait for")
	}
}

// TestMuxPartial checks that a source announces its first set that is not
// partial, even if it contains nothing new, and that an unchanged partial set causes no update.
func TestMuxPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler)), "file")
		pods := []*v1.Pod{newPod("a", "1", "x")}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, partial := range []bool{true, true, false, false} {
				mux.Set(t.Context(), "file", source.PodSet{Pods: pods, Partial: partial})
			}
		}()
		for i, want := range []source.Update{{Pods: pods, Partial: true}, {}} {
			if u := <-mux.Updates(); u.Op != source.ADD || u.Partial != want.Partial || len(u.Pods) != len(want.Pods) {
				t.Errorf("update %d is %+v, want %+v", i, u, want)
			}
		}
		<-done
	})
}

// TestMuxWithSlowConsumer interrupts a Set and checks that the next one
// continues from what was received, not from what was intended.
func TestMuxWithSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		go mux.Set(ctx, "file", source.PodSet{Pods: []*v1.Pod{newPod("a", "1", "x")}})
		if got := text(<-mux.Updates()); got != "ADD file: 1=x" {
			t.Fatalf("got %s", got)
		}
		synctest.Wait()

		done := make(chan struct{})
		go func() {
			mux.Set(ctx, "file", source.PodSet{Pods: []*v1.Pod{newPod("a", "2", "y")}})
			close(done)
		}()
		if got := text(<-mux.Updates()); got != "REMOVE file: 1=x" {
			t.Fatalf("got %s", got)
		}
		go mux.Set(ctx, "http", source.PodSet{}) // waits for its turn
		synctest.Wait()
		cancel()
		<-done

		go mux.Set(t.Context(), "file", source.PodSet{Pods: []*v1.Pod{newPod("a", "3", "z")}})
		if got := text(<-mux.Updates()); got != "ADD file: 3=z" {
			t.Fatalf("got %s", got)
		}
	})
}

// TestRestoredPodsAreTakenOver checks that the API server's first set replaces
// the pods from the journal: unchanged pods keep running, and the others follow
// the API server.
func TestRestoredPodsAreTakenOver(t *testing.T) {
	events := event.NewRecorder(slog.New(slog.DiscardHandler))
	m := source.NewMux(events, pod.SourceAPI)
	var got []string
	var sources []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for u := range m.Updates() {
			if u.Op == "" {
				return
			}
			got = append(got, text(u))
			for _, p := range u.Pods {
				sources = append(sources, pod.Source(p))
			}
			m.Seen(u.Source)
			if len(got) == 6 {
				return
			}
		}
	}()
	now := metav1.Now()
	m.Set(t.Context(), pod.SourceRestore, source.PodSet{Pods: []*v1.Pod{
		newPod("same", "1", "x"), newPod("changed", "2", "x"), newPod("gone", "3", "x"), newPod("replaced", "4", "x"), newPod("deleted", "5", "x"),
	}})
	if m.Ready() {
		t.Error("the journal alone makes the node ready to clean up")
	}
	m.Set(t.Context(), pod.SourceAPI, source.PodSet{Replaces: pod.SourceRestore, Pods: []*v1.Pod{
		with(newPod("same", "1", "x"), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }), newPod("changed", "2", "y"), newPod("replaced", "6", "y"),
		with(newPod("deleted", "5", "x"), func(p *v1.Pod) { p.DeletionTimestamp = &now }),
	}})
	<-done
	want := []string{
		"RESTORE restore: 1=x 2=x 3=x 4=x 5=x",
		"REMOVE restore: 3=x 4=x", "ADD api: 6=y", "UPDATE api: 2=y", "DELETE api: 5=x", "RECONCILE api: 1=x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	for _, s := range sources {
		if s != pod.SourceAPI {
			t.Errorf("a pod is marked as of source %q, which would make it a static pod", s)
		}
	}
	if w := warnings(events); len(w) > 0 {
		t.Errorf("warnings %v", w)
	}
	if !m.Ready() {
		t.Error("not ready after the API server's set")
	}
}
