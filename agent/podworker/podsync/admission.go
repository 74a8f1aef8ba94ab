package podsync

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// admitter is what the pods of this node take from it. What runs has its
// place; the others are judged in the order in which the sources bring them,
// so the same manifests always give the same verdicts. The zero value works.
type admitter struct {
	mu sync.Mutex
	// running are the pods that the runtime held when the agent came; nil
	// before that is known.
	running map[types.UID]struct{}
	pods    []*judged // in the order of their submission
	// reserved is a pod as others have to reckon with it; nil is as it is. It
	// must not block.
	reserved func(*v1.Pod) *v1.Pod
	// under is which pressures the node is under; nil is never any.
	under func() evictionapi.Conditions
}

// judged is one pod and what was found of it.
type judged struct {
	pod *v1.Pod
	// unsupported names the fields of its spec that cannot be honoured; empty
	// if there are none.
	unsupported string
	// rejection is why the pod may not run; nil admits it.
	rejection *admission.Rejection
	// over says that the pod takes nothing any more.
	over bool
}

// submit judges a pod that is new, and notes the new version of one that is
// not: what was admitted is not judged again. A nil node admits every pod.
// Before it is known what runs, no pod is judged.
func (a *admitter) submit(p *v1.Pod, node *admission.Node) {
	unsupported := ""
	if problems := admission.Unsupported(p); len(problems) > 0 {
		unsupported = problems.ToAggregate().Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.find(p.UID); known != nil {
		known.pod, known.unsupported = p, unsupported
		return
	}
	j := &judged{pod: p, unsupported: unsupported}
	a.pods = append(a.pods, j)
	if a.running != nil {
		a.judge(j, node)
	}
}

// adopt learns what runs, which has its place, and judges the others.
func (a *admitter) adopt(found []pod.Ref, node *admission.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.running == nil
	if first {
		a.running = make(map[types.UID]struct{}, len(found))
	}
	for _, ref := range found {
		a.running[ref.UID] = struct{}{}
	}
	if !first {
		return
	}
	waiting := a.pods
	a.pods = nil
	for _, running := range []bool{true, false} {
		for _, j := range waiting {
			if _, runs := a.running[j.pod.UID]; runs == running {
				a.pods = append(a.pods, j)
				a.judge(j, node)
			}
		}
	}
}

// judge needs the lock. As in the kubelet, pressure is looked at first, and
// once: a pod that is refused for it does not come later.
func (a *admitter) judge(j *judged, node *admission.Node) {
	if _, runs := a.running[j.pod.UID]; runs {
		return
	}
	if a.under != nil {
		if message, ok := policy.Admit(j.pod, a.under()); !ok {
			j.rejection = &admission.Rejection{Reason: policy.Reason, Message: message}
			return
		}
	}
	if node != nil {
		j.rejection = admission.Fit(j.pod, node, a.others(j))
	}
}

// fits checks a pod of another size; a nil node takes it.
func (a *admitter) fits(p *v1.Pod, node *admission.Node) *admission.Rejection {
	if node == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.find(p.UID)
	if j == nil {
		j = &judged{pod: p}
	}
	return admission.Fit(p, node, a.others(j))
}

// resize notes what a pod was allocated, if it is known.
func (a *admitter) resize(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(p.UID); j != nil {
		j.pod = p
	}
}

// verdict is what was found of the pod; ok is false for one that no source
// wants any more.
func (a *admitter) verdict(uid types.UID) (unsupported string, rejection *admission.Rejection, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		return j.unsupported, j.rejection, true
	}
	return "", nil, false
}

// retry judges a pod again whose rejection named pods to preempt, once none
// of those takes anything. done is false while one still does.
func (a *admitter) retry(uid types.UID, node *admission.Node) (done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.find(uid)
	if j == nil || j.rejection == nil {
		return true
	}
	for _, victim := range j.rejection.Preempt {
		if v := a.find(victim); v != nil && !v.over {
			return false
		}
	}
	j.rejection = admission.Fit(j.pod, node, a.others(j))
	return true
}

// claim admits a pod that runs already, whatever was found before: what
// another agent, or this one before its restart, has started stays.
func (a *admitter) claim(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		j.rejection = nil
	}
}

// begin notes that the pod lives, and has its place: one of the UID may have
// ended before, after this one was submitted.
func (a *admitter) begin(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		j.over = false
	}
}

// end notes that the pod takes nothing any more, and answers who waited for
// that.
func (a *admitter) end(uid types.UID) (waiting []types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		j.over = true
	}
	return a.waitingFor(uid)
}

// remove forgets the pod, and answers who waited for its end.
func (a *admitter) remove(uid types.UID) (waiting []types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = slices.DeleteFunc(a.pods, func(j *judged) bool { return j.pod.UID == uid })
	delete(a.running, uid)
	return a.waitingFor(uid)
}

// waitingFor are the pods for which this one is preempted. It needs the lock.
func (a *admitter) waitingFor(uid types.UID) (waiting []types.UID) {
	for _, j := range a.pods {
		if j.rejection != nil && slices.Contains(j.rejection.Preempt, uid) {
			waiting = append(waiting, j.pod.UID)
		}
	}
	return waiting
}

// find needs the lock.
func (a *admitter) find(uid types.UID) *judged {
	for _, j := range a.pods {
		if j.pod.UID == uid {
			return j
		}
	}
	return nil
}

// others are the pods that take something beside j. One of the same full
// name has to end before j begins, so it counts for nothing. It needs the
// lock.
func (a *admitter) others(j *judged) []*v1.Pod {
	name := pod.RefOf(j.pod).FullName()
	var out []*v1.Pod
	for _, other := range a.pods {
		if other != j && !other.over && other.rejection == nil && pod.RefOf(other.pod).FullName() != name {
			p := other.pod
			if a.reserved != nil {
				p = a.reserved(p)
			}
			out = append(out, p)
		}
	}
	return out
}
