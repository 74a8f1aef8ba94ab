package podsync

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
)

// resizes has the allocations of the API server's pods: the resources that the node has
// allocated, as opposed to those that the spec requests. The rest of the agent uses a pod
// as returned by allocated. Static pods are not included: they cannot be resized.
type resizes struct {
	record *checkpoint.Store

	// deciding is held during a decision, until it is persisted: each decision
	// changes the free resources for the next. It is locked before mu.
	deciding sync.Mutex

	mu   sync.Mutex
	pods map[types.UID]*resizable
}

// resizable is the state of one pod. The lock of resizes guards it.
type resizable struct {
	desired *v1.Pod // as the source has it
	// allocation is the pod's allocation. nil means that it equals the spec, which
	// has not changed since the pod came: the pod was never resized, and no
	// allocation is recorded.
	allocation *resize.Allocation
	conditions resize.Conditions
	// fromJournal means that the pod comes from the journal, which does not have its
	// conditions. Those of the API server are still to come.
	fromJournal bool
	// due means that a decision is pending. waiting means that it is pending until the
	// preempted pods have ended. over means that the pod has ended
	// and that no decisions follow.
	due, waiting, over bool
	// trigger is what triggered the last decision, for metrics.
	trigger string
	// stale means that an agent may have died or failed before it wrote the
	// parts of the allocation that the comparison does not cover, such as the memory
	// protection.
	stale bool
	// failures is the number of failed attempts in a row to execute the resize.
	failures int
	// previousMemory are the memory requests that running containers had before the resize
	// in progress, by name. No runtime reports memory requests.
	previousMemory map[string]memoryRequest
}

// memoryRequest is the memory request of one container ID, in bytes.
type memoryRequest struct {
	id    string
	bytes int64
}

// submit stores a version of a pod. It returns the pod as allocated, and the previous
// version; nil means none. A new pod has its recorded allocation, or else the one that the
// API server's status reports, since its spec may have changed while no agent was running.
func (r *resizes) submit(p *v1.Pod) (allocated, before *v1.Pod) {
	if pod.IsStatic(p) || pod.IsMirror(p) {
		return p, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, trigger := r.pods[p.UID], podUpdated
	switch {
	case e == nil:
		trigger = podsAdded
		e = &resizable{allocation: r.recorded(p.UID), conditions: resize.ConditionsOf(p.Status.Conditions), fromJournal: p.ResourceVersion == ""}
		if has := resize.FromStatus(p); e.allocation == nil && !has.MatchesSpec(p) {
			e.allocation = &has
		}
		e.stale = e.allocation != nil
		if r.pods == nil {
			r.pods = make(map[types.UID]*resizable)
		}
		r.pods[p.UID] = e
	case e.allocation == nil:
		if was := resize.FromSpec(e.desired); !was.MatchesSpec(p) {
			e.allocation = &was
		}
	}
	before, e.desired, e.trigger = e.desired, p, trigger
	e.takeConditions(p)
	if e.allocation == nil {
		return p, before
	}
	e.due, e.waiting = e.needsDecision(), false
	return e.allocation.Apply(p), before
}

// reconcile processes the API server's status of a pod whose spec has not
// changed. It reports whether the pod needs a sync.
func (r *resizes) reconcile(p *v1.Pod) (needsSync bool) {
	r.change(p.UID, func(e *resizable) {
		if needsSync = e.fromJournal && e.takeConditions(p); needsSync {
			e.due = e.needsDecision()
		}
	})
	return needsSync
}

// needsDecision reports whether there is something to decide: the spec differs from the
// allocation, or the API server has an earlier decision.
func (e *resizable) needsDecision() bool {
	return !e.over && (!e.allocation.MatchesSpec(e.desired) || e.conditions.Pending != nil)
}

// takeConditions merges the API server's conditions if the pod came from the journal
// without them. It reports whether the pod has any conditions.
func (e *resizable) takeConditions(p *v1.Pod) (some bool) {
	if e.fromJournal && p.ResourceVersion != "" {
		e.fromJournal, e.conditions = false, e.conditions.Merge(resize.ConditionsOf(p.Status.Conditions))
	}
	some = e.conditions != resize.Conditions{}
	if some && e.allocation == nil { // the resize is over, or its record is missing
		e.allocation = new(resize.FromSpec(e.desired))
	}
	return some
}

// recorded returns the persisted allocation of a pod, or nil.
func (r *resizes) recorded(uid types.UID) *resize.Allocation {
	if a, ok := r.record.Get(uid); ok {
		return &a
	}
	return nil
}

// allocated returns the pod with its allocation; p is the pod as its source has it, or nil,
// for which it returns nil. A pod that no source has keeps its recorded allocation.
func (r *resizes) allocated(p *v1.Pod) *v1.Pod {
	if p == nil || pod.IsStatic(p) {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	given := r.recorded(p.UID)
	if e := r.pods[p.UID]; e != nil {
		given = e.allocation
	}
	if given == nil {
		return p
	}
	return given.Apply(p)
}

// state returns a copy of the state of a pod, or the zero value if the pod is unknown. The
// allocation is nil if the pod never had a resize request.
func (r *resizes) state(uid types.UID) (state resizable) {
	r.change(uid, func(e *resizable) { state = *e })
	return state
}

// countFailure counts a failed attempt to execute a resize, and returns the number of
// failures in a row.
func (r *resizes) countFailure(uid types.UID) (failures int) {
	failures = 1 // for a pod that is gone
	r.change(uid, func(e *resizable) { e.failures++; failures = e.failures })
	return failures
}

// allDue returns the pods with a pending decision, in the order in which they
// have to be decided.
func (r *resizes) allDue() []resize.Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []resize.Pending
	for _, e := range r.pods {
		if e.due && e.desired.DeletionTimestamp == nil {
			list = append(list, resize.Pending{Pod: e.desired, Allocation: *e.allocation, Since: e.conditions.PendingSince()})
		}
	}
	resize.Sort(list)
	return list
}

// retryDeferred makes the deferred resizes due again, records the trigger, and returns
// their pods.
func (r *resizes) retryDeferred(trigger string) (waiting []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, e := range r.pods {
		pending := e.conditions.Pending
		if e.over || e.desired.DeletionTimestamp != nil || e.allocation == nil || pending != nil && pending.Reason == v1.PodReasonInfeasible || e.allocation.MatchesSpec(e.desired) {
			continue
		}
		e.due, e.trigger = true, trigger
		waiting = append(waiting, uid)
	}
	return waiting
}

// change calls how with the state of a pod under the lock. It does nothing for an unknown
// pod.
func (r *resizes) change(uid types.UID, how func(e *resizable)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[uid]; e != nil {
		how(e)
	}
}

// memory returns the memory request of a running container, if it differs from
// the allocation.
func (r *resizes) memory(uid types.UID, name, id string) (bytes int64, ok bool) {
	r.change(uid, func(e *resizable) {
		had, known := e.previousMemory[name]
		bytes, ok = had.bytes, known && had.id == id
	})
	return bytes, ok
}

// begin clears over. An earlier pod of the same UID may have ended after this one was
// submitted.
func (r *resizes) begin(uid types.UID) {
	r.change(uid, func(e *resizable) {
		if e.over {
			e.over, e.due = false, e.allocation != nil && !e.allocation.MatchesSpec(e.desired)
		}
	})
}

func (r *resizes) end(uid types.UID) {
	r.change(uid, func(e *resizable) { e.over, e.due, e.waiting = true, false, false })
}

// remove removes a pod that no source has. Its record stays until Forget.
func (r *resizes) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}

// keepMemory stores the memory requests of the running containers before the
// allocation changes.
func (e *resizable) keepMemory(was *v1.Pod, st *v1.PodStatus) {
	for c, kind := range pod.Containers(&was.Spec) {
		s := pod.FindContainerStatus(st, c.Name)
		if kind == pod.Ephemeral || s == nil || s.State.Running == nil {
			continue
		}
		id := pod.ContainerID(s)
		if had, known := e.previousMemory[c.Name]; known && had.id == id {
			continue // the previous resize has not reached this container
		}
		if e.previousMemory == nil {
			e.previousMemory = make(map[string]memoryRequest)
		}
		e.previousMemory[c.Name] = memoryRequest{id, resize.DesiredValues(was, c).MemoryRequest}
	}
}
