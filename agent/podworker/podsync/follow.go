package podsync

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// APIPods sets the pods of the API server as a source. Until the first list of the API
// server it sets the pods of the journal.
type APIPods struct {
	API   *source.API
	Store *offline.Store // nil without a journal
	// Set replaces the pods of a source.
	Set func(ctx context.Context, source string, pods source.PodSet)
	// Known reports whether a pod has a worker.
	Known func(types.UID) bool
	// Listed is called when the first list of the API server is set.
	Listed func()
	Log    *slog.Logger

	listed   bool // the API server has listed its pods, in this Run or an earlier one
	restored sync.Once
	// Restored is closed when the pods of the journal are set.
	Restored chan struct{}
}

// Run sets the pods of the journal, and replaces them by those of the API server. It
// blocks until ctx ends and returns the cause of ctx. At most one Run may be active at a
// time.
func (a *APIPods) Run(ctx context.Context) error {
	if a.Store != nil && !a.listed {
		pods := a.Store.Pods()
		a.Log.Info("restored pods from the journal", "pods", len(pods))
		a.Set(ctx, pod.SourceRestore, source.PodSet{Pods: pods})
	}
	a.restored.Do(func() { close(a.Restored) })
	return a.API.Run(ctx, func(ctx context.Context, pods source.PodSet) {
		pods.Replaces = pod.SourceRestore
		a.Set(ctx, pod.SourceAPI, pods)
		if !a.listed && ctx.Err() == nil {
			a.listed = true
			a.Listed()
			a.prune(ctx, pods.Pods)
		}
	})
}

// prune removes the pods from the journal that the API server has not listed and that have no
// worker, such as pods that cannot be decoded. A listed pod may get its worker later: when Set
// returns, the last update was received, but perhaps not processed.
func (a *APIPods) prune(ctx context.Context, listed []*v1.Pod) {
	if a.Store == nil {
		return
	}
	for _, uid := range a.Store.UIDs() {
		if a.Known(uid) || slices.ContainsFunc(listed, func(p *v1.Pod) bool { return p.UID == uid }) {
			continue
		}
		if err := a.Store.Forget(ctx, uid); err != nil {
			a.Log.Warn("cannot remove pod from journal", "podUID", uid, "effect", "the next write removes it", "error", err)
		}
	}
}

// Reportable changes and returns the entries for the status manager. It removes a status
// that was not observed: after a reboot, the status in the API server is better than that of
// an agent whose runtime does not respond yet. It removes a status for which mayReport
// returns false, such as a final one that is not in the journal yet: a pod that is terminal
// for the API server must not run again.
func Reportable(entries []pod.Entry, mayReport func(*v1.Pod, *v1.PodStatus) bool) []pod.Entry {
	for i := range entries {
		if e := &entries[i]; !e.Observed || !mayReport(e.Pod, e.Status) {
			e.Status = nil
		}
	}
	return entries
}
