package podsync

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// admitter decides which pods the node admits. Running pods are always admitted.
// The others are decided in the order in which the sources submit them, so the
// same manifests always give the same result.
type admitter struct {
	mu sync.Mutex
	// running are the pods that the runtime had when the agent started; nil
	// until they are known.
	running map[types.UID]struct{}
	pods    []*candidate // in the order of submission
	// reserved returns a pod with the resources that the admission of other
	// pods has to count. It must not block.
	reserved func(*v1.Pod) *v1.Pod
	// pressure returns the node's pressure conditions.
	pressure func() evictionapi.Conditions
}

// candidate is a pod and the result of its admission.
type candidate struct {
	pod *v1.Pod
	// unsupported names the fields of the pod's spec that are not supported;
	// empty if there are none.
	unsupported string
	// rejection is the reason why the pod is rejected; nil means admitted.
	rejection *admission.Rejection
	// ended means that the pod has ended and no longer uses resources.
	ended bool
}

// submit decides the admission of a new pod. For a known pod it only stores the new
// version and its unsupported fields. A nil node admits every pod that node pressure
// does not reject. No pod is decided before the running pods are known.
func (a *admitter) submit(p *v1.Pod, node *nodeinfo.Admission) {
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
	j := &candidate{pod: p, unsupported: unsupported}
	a.pods = append(a.pods, j)
	if a.running != nil {
		a.decide(j, node)
	}
}

// adopt records the running pods, which are admitted. The first call decides the
// admission of the pods submitted before it, the running ones first.
func (a *admitter) adopt(found []pod.Ref, node *nodeinfo.Admission) {
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
				a.decide(j, node)
			}
		}
	}
}

// decide decides the admission of a pod. As in the kubelet, it checks node
// pressure first and only once: a pod that is rejected for pressure is not
// admitted later. A pod that is terminal in the API server and does not run has
// ended, in an earlier process of the agent or without it, and is not checked.
// The caller holds the lock.
func (a *admitter) decide(j *candidate, node *nodeinfo.Admission) {
	if _, runs := a.running[j.pod.UID]; runs {
		return
	}
	if j.ended = plan.TerminalInAPI(j.pod); j.ended {
		return
	}
	if message, ok := policy.Admit(j.pod, a.pressure()); !ok {
		j.rejection = &admission.Rejection{Reason: policy.Reason, Message: message}
		return
	}
	if node != nil {
		j.rejection = admission.Fit(j.pod, node, a.others(j))
	}
}

// fits checks whether a pod with other requests fits. A nil node admits every pod.
func (a *admitter) fits(p *v1.Pod, node *nodeinfo.Admission) *admission.Rejection {
	if node == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.find(p.UID)
	if j == nil {
		j = &candidate{pod: p}
	}
	return admission.Fit(p, node, a.others(j))
}

// resize stores the allocated version of a pod, if the pod is known.
func (a *admitter) resize(p *v1.Pod) {
	a.change(p.UID, func(j *candidate) { j.pod = p })
}

// result returns the result of a pod's admission. ok is false for a pod that no source
// has.
func (a *admitter) result(uid types.UID) (unsupported string, rejection *admission.Rejection, ok bool) {
	a.change(uid, func(j *candidate) { unsupported, rejection, ok = j.unsupported, j.rejection, true })
	return unsupported, rejection, ok
}

// retry decides again about a rejected pod, without a check of node pressure. If the
// rejection names pods to preempt, it decides only once all of those have ended. done is
// false before that.
func (a *admitter) retry(uid types.UID, node *nodeinfo.Admission) (done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.find(uid)
	if j == nil || j.rejection == nil {
		return true
	}
	for _, victim := range j.rejection.Preempt {
		if v := a.find(victim); v != nil && !v.ended {
			return false
		}
	}
	j.rejection = admission.Fit(j.pod, node, a.others(j))
	return true
}

// admitRunning admits a pod whatever was decided before, since it already runs or has
// ended: a pod that another agent, or this one before its restart, has started keeps
// running.
func (a *admitter) admitRunning(uid types.UID) {
	a.change(uid, func(j *candidate) { j.rejection = nil })
}

// begin records that the pod counts against the node's resources. An earlier pod of the
// same UID may have ended after this one was submitted. A pod that is terminal in the API
// server does not begin again.
func (a *admitter) begin(uid types.UID) {
	a.change(uid, func(j *candidate) { j.ended = j.ended && plan.TerminalInAPI(j.pod) })
}

// end records that the pod no longer uses resources, and returns the pods that waited
// for that.
func (a *admitter) end(uid types.UID) (waiting []types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		j.ended = true
	}
	return a.waitingFor(uid)
}

// remove forgets the pod, and returns the pods that waited for its end.
func (a *admitter) remove(uid types.UID) (waiting []types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = slices.DeleteFunc(a.pods, func(j *candidate) bool { return j.pod.UID == uid })
	delete(a.running, uid)
	return a.waitingFor(uid)
}

// waitingFor returns the pods for which this one is preempted. The caller holds
// the lock.
func (a *admitter) waitingFor(uid types.UID) (waiting []types.UID) {
	for _, j := range a.pods {
		if j.rejection != nil && slices.Contains(j.rejection.Preempt, uid) {
			waiting = append(waiting, j.pod.UID)
		}
	}
	return waiting
}

// change calls how with the entry of a pod under the lock, if there is one.
func (a *admitter) change(uid types.UID, how func(j *candidate)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.find(uid); j != nil {
		how(j)
	}
}

// find returns the entry of a pod, or nil. The caller holds the lock.
func (a *admitter) find(uid types.UID) *candidate {
	for _, j := range a.pods {
		if j.pod.UID == uid {
			return j
		}
	}
	return nil
}

// others returns the pods that count against the node's resources in addition to j: those
// that are not rejected and have not ended. A pod of the same full name does not count,
// since it has to end before j begins. The caller holds the lock. It calls reserved, which
// takes the locks of resizes and of the status store.
func (a *admitter) others(j *candidate) []*v1.Pod {
	name := pod.RefOf(j.pod).FullName()
	var out []*v1.Pod
	for _, other := range a.pods {
		if other != j && !other.ended && other.rejection == nil && pod.RefOf(other.pod).FullName() != name {
			out = append(out, a.reserved(other.pod))
		}
	}
	return out
}
