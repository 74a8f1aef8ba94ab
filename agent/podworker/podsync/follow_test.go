package podsync

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// podList is an API server with pods that do not change.
type podList struct {
	apiclient.API
	pods []v1.Pod
}

func (l podList) List(_ context.Context, _ apiclient.Resource, _ string, _ metav1.ListOptions, into runtime.Object) error {
	into.(*v1.PodList).Items = slices.Clone(l.pods)
	into.(*v1.PodList).ResourceVersion = "1"
	return nil
}

func (l podList) Watch(ctx context.Context, _ apiclient.Resource, _ string, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestListedPodsStayInTheJournal has a pod whose worker does not exist yet when the list of the
// API server is set, and whose terminal status is all that the journal has of it.
func TestListedPodsStayInTheJournal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		store, err := offline.Open(offline.Config{Dir: dir, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		for _, uid := range []types.UID{"listed", "deleted"} {
			if err := store.Finish(t.Context(), uid, &v1.PodStatus{Phase: v1.PodSucceeded}); err != nil {
				t.Fatal(err)
			}
		}
		listed := v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "listed", UID: "listed"},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "main", Image: "example.com/main"}}},
		}
		api, err := source.NewAPI(source.APIConfig{API: podList{pods: []v1.Pod{listed}}, NodeName: "n", Log: log, Events: event.NewRecorder(log)})
		if err != nil {
			t.Fatal(err)
		}
		pods := &APIPods{
			API: api, Store: store, Log: log, Restored: make(chan struct{}),
			Set:    func(context.Context, string, source.PodSet) {},
			Known:  func(types.UID) bool { return false },
			Listed: func() {},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = pods.Run(ctx)
		}()
		synctest.Wait()
		if got := store.UIDs(); !slices.Equal(got, []types.UID{"listed"}) {
			t.Errorf("journal has pods %v, want the listed one alone", got)
		}
		cancel()
		<-ended
	})
}
