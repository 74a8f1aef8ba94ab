package podsync

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/wait"
)

// Journaled is a Syncer that stores the API server's pods in the journal. It stores a pod
// before each sync, and its final status before the API server receives it. It deletes a
// pod from the journal when the pod is forgotten.
type Journaled struct {
	*Syncer
	store *offline.Store
	// reportable is set when MayReport becomes true for the final status of a pod.
	reportable wait.Wakeup

	unstored sync.Map // UIDs of terminal pods whose status could not be stored
}

var _ podworker.Syncer = (*Journaled)(nil)

// NewJournaled returns a Journaled. It sets reportable when MayReport becomes true for a pod.
func NewJournaled(s *Syncer, store *offline.Store, reportable wait.Wakeup) *Journaled {
	return &Journaled{Syncer: s, store: store, reportable: reportable}
}

// Sync implements podworker.Syncer. A pod that cannot be stored runs nevertheless. While a
// resize is undecided, the journal keeps the former spec. Otherwise the pod would start
// with the requested resources after a reboot, and not with the allocated ones.
func (j *Journaled) Sync(ctx context.Context, p *v1.Pod) (podworker.Result, error) {
	if !pod.IsStatic(p) && !j.ResizeUndecided(p.UID) {
		if err := j.store.Admit(ctx, p); err != nil && ctx.Err() == nil {
			j.Events.Warning(pod.RefOf(p), offline.ReasonNotJournaled, "the pod is not restored after a reboot without network: "+err.Error())
		}
	}
	result, err := j.Syncer.Sync(ctx, p)
	switch {
	case err != nil:
	case result.Done:
		_ = j.storeEnd(ctx, pod.RefOf(p), p) // Finish repeats it
	default:
		j.store.Complete(p.UID)
	}
	return result, err
}

// Terminate implements podworker.Syncer.
func (j *Journaled) Terminate(ctx context.Context, ref pod.Ref, p *v1.Pod, grace time.Duration) error {
	err := j.Syncer.Terminate(ctx, ref, p, grace)
	if err == nil {
		_ = j.storeEnd(ctx, ref, p) // Finish repeats it
	}
	return err
}

// Finish implements podworker.Syncer.
func (j *Journaled) Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	if err := j.Syncer.Finish(ctx, ref, p); err != nil {
		return err
	}
	return j.storeEnd(ctx, ref, p)
}

// storeEnd stores the final status of a pod with a terminal phase, and makes it reportable,
// even if it cannot be stored. It does not store the status of a pod that a node shutdown
// has terminated: that pod runs again, unless the API server receives its status.
func (j *Journaled) storeEnd(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	if p == nil || pod.IsStatic(p) {
		return nil
	}
	_, s, ok := j.Statuses.Get(ref.UID)
	if !ok || !pod.IsTerminal(s.Phase) || shutdown.Terminated(s) {
		return nil
	}
	was := j.MayReport(p, s)
	err := j.store.Finish(ctx, ref.UID, s)
	if err != nil && ctx.Err() == nil {
		// A Job must complete even if the disk is full.
		j.unstored.Store(ref.UID, nil)
	}
	if !was && j.MayReport(p, s) {
		j.reportable.Set()
	}
	if errors.Is(err, offline.ErrFull) {
		j.Events.Warning(ref, offline.ReasonNotJournaled, "the pod may start again after a reboot without network: "+err.Error())
		return nil
	}
	return err
}

// MayReport reports whether the API server may receive a pod's status. A final status must
// be in the journal before, unless it could not be stored. That of a pod that a node
// shutdown has terminated is stored once the API server has it.
func (j *Journaled) MayReport(p *v1.Pod, s *v1.PodStatus) bool {
	if pod.IsStatic(p) || !pod.IsTerminal(s.Phase) || shutdown.Terminated(s) || j.store.IsTerminal(p.UID) {
		return true
	}
	_, unstored := j.unstored.Load(p.UID)
	return unstored
}

// Forget implements podworker.Syncer.
func (j *Journaled) Forget(ctx context.Context, ref pod.Ref) error {
	if err := j.Syncer.Forget(ctx, ref); err != nil {
		return err
	}
	j.unstored.Delete(ref.UID)
	err := j.store.Forget(ctx, ref.UID)
	if errors.Is(err, offline.ErrFull) {
		return nil // the next write deletes it
	}
	return err
}
