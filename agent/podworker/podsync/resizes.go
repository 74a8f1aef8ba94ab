package podsync

import (
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
)

// resizes is what pods were allocated that somebody asked to resize: what
// the node gave them, and not what their specs ask for. All else on the node
// looks at a pod as allocated answers it. Static pods are what their
// manifests say, and are not in it. The zero value works, and keeps nothing on
// the disk.
type resizes struct {
	record *checkpoint.Store // nil keeps none

	// deciding is held over a decision, until it is on the disk: each changes
	// the room of the next.
	deciding sync.Mutex

	mu   sync.Mutex
	pods map[types.UID]*resizable
}

// resizable is one pod. The lock of resizes guards it.
type resizable struct {
	wanted *v1.Pod // as the source has it
	// given is what the pod was allocated. nil is what it asks for, and has
	// asked for ever since it came: it is not on record, and never resized.
	given      *resize.Allocation
	conditions resize.Conditions
	// kept says that the pod is the journal's, which has no conditions of it:
	// those that the API server has are still to come.
	kept bool
	// due says that there is something to decide, over that the pod has ended
	// and there never will be.
	due, over bool
	// trigger is what had it decided last, for metrics.
	trigger string
	// behind says that an agent may have died, or failed, before it wrote what
	// of the allocation no look compares, such as what protects memory.
	behind bool
	// failures is how often in a row it could not be carried out.
	failures int
	// had are the memory requests that running containers had before the
	// resize that is in progress, by name: no runtime tells them.
	had map[string]memoryRequest
}

// memoryRequest is that of one run of a container, in bytes.
type memoryRequest struct {
	id    string
	bytes int64
}

// submit takes a version of a pod, and answers it as allocated, and the version
// before; nil is none. A pod that is new has what is on record of it, or else
// what the API server says that it has: somebody may have asked for more while
// no agent was there.
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
		e = &resizable{given: r.recorded(p.UID), conditions: resize.ConditionsOf(p.Status.Conditions), kept: p.ResourceVersion == ""}
		if has := resize.Reported(p); e.given == nil && !has.Meets(p) {
			e.given = &has
		}
		e.behind = e.given != nil
		if r.pods == nil {
			r.pods = make(map[types.UID]*resizable)
		}
		r.pods[p.UID] = e
	case e.given == nil:
		if was := resize.Of(e.wanted); !was.Meets(p) {
			e.given = &was
		}
	}
	before, e.wanted, e.trigger = e.wanted, p, trigger
	e.learn(p)
	if e.given == nil {
		return p, before
	}
	e.due = e.open()
	return e.given.Apply(p), before
}

// reconcile takes the status that the API server has of a pod that is wanted
// as it was, and says whether the pod is to be looked at for it.
func (r *resizes) reconcile(p *v1.Pod) (look bool) {
	r.change(p.UID, func(e *resizable) {
		if look = e.kept && e.learn(p); look {
			e.due = e.open()
		}
	})
	return look
}

// open says whether there is something to decide: what is asked for is not what
// was allocated, or the API server has an earlier decision.
func (e *resizable) open() bool {
	return !e.over && (!e.given.Meets(e.wanted) || e.conditions.Pending != nil)
}

// learn takes the conditions of the API server, if they were still to come,
// and says whether there are some.
func (e *resizable) learn(p *v1.Pod) (some bool) {
	if e.kept && p.ResourceVersion != "" {
		e.kept, e.conditions = false, e.conditions.Continue(resize.ConditionsOf(p.Status.Conditions))
	}
	some = e.conditions != resize.Conditions{}
	if some && e.given == nil { // of a resize that is over, or nobody has a record of it
		e.given = new(resize.Of(e.wanted))
	}
	return some
}

// recorded is what is on record of a pod; nil is nothing.
func (r *resizes) recorded(uid types.UID) *resize.Allocation {
	if r.record == nil {
		return nil
	}
	if a, ok := r.record.Get(uid); ok {
		return &a
	}
	return nil
}

// allocated is a pod as the node has it, given as a source has it; nil stays
// nil. One that no source wants any more is as it was last.
func (r *resizes) allocated(p *v1.Pod) *v1.Pod {
	if p == nil || pod.IsStatic(p) {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	given := r.recorded(p.UID)
	if e := r.pods[p.UID]; e != nil {
		given = e.given
	}
	if given == nil {
		return p
	}
	return given.Apply(p)
}

// resized says whether somebody ever asked to resize the pod.
func (r *resizes) resized(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	return e != nil && e.given != nil
}

// isBehind says whether what no look shows may not be as it was allocated.
func (r *resizes) isBehind(uid types.UID) (behind bool) {
	r.change(uid, func(e *resizable) { behind = e.behind })
	return behind
}

// failed counts that a resize could not be carried out, in a row.
func (r *resizes) failed(uid types.UID) (failures int) {
	failures = 1 // of a pod that is gone
	r.change(uid, func(e *resizable) { e.failures++; failures = e.failures })
	return failures
}

// isDue says whether there is something to decide for the pod.
func (r *resizes) isDue(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	return e != nil && e.due
}

// allDue are the pods with something to decide, in the order in which that
// has to be.
func (r *resizes) allDue() []resize.Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []resize.Pending
	for _, e := range r.pods {
		if e.due && e.wanted.DeletionTimestamp == nil {
			list = append(list, resize.Pending{Pod: e.wanted, Allocation: *e.given, Since: e.conditions.PendingSince()})
		}
	}
	resize.Sort(list)
	return list
}

// again has those decided again that were put off, for the trigger, and answers
// them.
func (r *resizes) again(trigger string) (waiting []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, e := range r.pods {
		pending := e.conditions.Pending
		if e.over || e.wanted.DeletionTimestamp != nil || e.given == nil || pending != nil && pending.Reason == v1.PodReasonInfeasible || e.given.Meets(e.wanted) {
			continue
		}
		e.due, e.trigger = true, trigger
		waiting = append(waiting, uid)
	}
	return waiting
}

// change changes what is known of a pod, if it is.
func (r *resizes) change(uid types.UID, how func(e *resizable)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[uid]; e != nil {
		how(e)
	}
}

// conditions are those of the pod's status.
func (r *resizes) conditions(uid types.UID) (c resize.Conditions) {
	r.change(uid, func(e *resizable) { c = e.conditions })
	return c
}

// memory is the request that a running container has, if it is another than
// was allocated.
func (r *resizes) memory(uid types.UID, name, id string) (bytes int64, ok bool) {
	r.change(uid, func(e *resizable) {
		had, known := e.had[name]
		bytes, ok = had.bytes, known && had.id == id
	})
	return bytes, ok
}

// begin notes that the pod lives: one of the UID may have ended before, after
// this one was submitted.
func (r *resizes) begin(uid types.UID) {
	r.change(uid, func(e *resizable) {
		if e.over {
			e.over, e.due = false, e.given != nil && !e.given.Meets(e.wanted)
		}
	})
}

// end notes that the pod has ended.
func (r *resizes) end(uid types.UID) {
	r.change(uid, func(e *resizable) { e.over, e.due = true, false })
}

// remove forgets a pod that no source wants; its record stays until nothing
// of the pod is left.
func (r *resizes) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}

// forget drops the record of a pod of which nothing is left.
func (r *resizes) forget(uid types.UID) error {
	if r.record == nil {
		return nil
	}
	return r.record.Drop(uid)
}

// uids are the pods on record.
func (r *resizes) uids() []types.UID {
	if r.record == nil {
		return nil
	}
	return r.record.UIDs()
}

// keepMemory notes what running containers have before the allocation
// becomes another one.
func (e *resizable) keepMemory(was *v1.Pod, st *v1.PodStatus) {
	for c, kind := range pod.Containers(&was.Spec) {
		s := pod.StatusOf(st, c.Name)
		if kind == pod.Ephemeral || s == nil || s.State.Running == nil {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if had, known := e.had[c.Name]; known && had.id == id {
			continue // the resize before has not come to it
		}
		if e.had == nil {
			e.had = make(map[string]memoryRequest)
		}
		e.had[c.Name] = memoryRequest{id, resize.Wanted(was, c).MemoryRequest}
	}
}
