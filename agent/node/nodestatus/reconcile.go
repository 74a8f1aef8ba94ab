package nodestatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reconcile returns a copy of the existing node with the labels, the annotation and
// the resources of this start of the agent, and reports whether anything changed.
// It is used if the node is already registered; Patch makes the request of existing
// and patched (tryRegisterWithAPIServer in pkg/kubelet/kubelet_node_status.go).
//
// Everything else stays: taints and labels that were set at registration may have
// been changed by users since. Extended resources that initial does not have are
// set to zero until a device plugin registers again. The kubelet does so where it
// has no checkpoint of device plugins; tinylet has none.
func Reconcile(existing, initial *v1.Node) (patched *v1.Node, changed bool) {
	patched = existing.DeepCopy()
	changed = reconcileAttachDetach(patched, initial)
	changed = reconcileLabels(patched, initial) || changed
	changed = adopt(&patched.Status.Capacity, initial.Status.Capacity) || changed
	changed = adopt(&patched.Status.Allocatable, initial.Status.Allocatable) || changed
	changed = reconcileExtended(&patched.Status, &initial.Status) || changed
	changed = reconcileHugePages(&patched.Status, &initial.Status) || changed
	return patched, changed
}

func reconcileAttachDetach(n, initial *v1.Node) bool {
	want, annotated := initial.Annotations[annotationAttachDetach]
	if n.Annotations[annotationAttachDetach] == want {
		return false
	}
	if !annotated {
		delete(n.Annotations, annotationAttachDetach)
		return true
	}
	return set(&n.Annotations, annotationAttachDetach, want)
}

// defaultLabels are the labels that a node keeps up to date on itself
// (updateDefaultLabels in pkg/kubelet/kubelet_node_status.go).
var defaultLabels = []string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion,
	v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	v1.LabelOSStable, v1.LabelArchStable, v1.LabelWindowsBuild,
	kubeletapis.LabelOS, kubeletapis.LabelArch,
}

// reconcileLabels sets the default labels that initial has. An empty value removes
// the label.
func reconcileLabels(n, initial *v1.Node) (changed bool) {
	for _, label := range defaultLabels {
		want, ok := initial.Labels[label]
		if !ok {
			continue
		}
		if n.Labels[label] != want {
			changed = set(&n.Labels, label, want) || changed
		}
		if want == "" {
			delete(n.Labels, label)
		}
	}
	return changed
}

// adopt sets a list of resources that is nil to the initial one.
func adopt(list *v1.ResourceList, initial v1.ResourceList) (changed bool) {
	if *list != nil || initial == nil {
		return false
	}
	*list = initial.DeepCopy()
	return true
}

// reconcileExtended sets the extended resources to zero. It reports a change only
// if a number changed, because a restart would otherwise cost a request.
func reconcileExtended(s, initial *v1.NodeStatus) (changed bool) {
	for name, q := range s.Capacity {
		if _, ours := initial.Capacity[name]; ours || !pod.IsExtendedResource(name) {
			continue
		}
		usable := s.Allocatable[name]
		if q.IsZero() && usable.IsZero() {
			continue
		}
		changed = put(&s.Capacity, name, *resource.NewQuantity(0, resource.DecimalSI)) || changed
		changed = put(&s.Allocatable, name, *resource.NewQuantity(0, resource.DecimalSI)) || changed
	}
	return changed
}

// reconcileHugePages sets the huge pages of the sizes that the kernel has, and
// removes all others.
func reconcileHugePages(s, initial *v1.NodeStatus) (changed bool) {
	for name, q := range initial.Capacity {
		if !pod.IsHugePages(name) {
			continue
		}
		capacity, had := s.Capacity[name]
		if !had || capacity.Cmp(q) != 0 {
			changed = put(&s.Capacity, name, q.DeepCopy()) || changed
		}
		want := initial.Allocatable[name]
		if usable := s.Allocatable[name]; !had || usable.Cmp(want) != 0 {
			changed = put(&s.Allocatable, name, want.DeepCopy()) || changed
		}
	}
	for name := range s.Capacity {
		if _, ok := initial.Capacity[name]; !ok && pod.IsHugePages(name) {
			delete(s.Capacity, name)
			delete(s.Allocatable, name)
			changed = true
		}
	}
	return changed
}

// put sets a value of a map that may be nil, and returns true. Callers call it only for
// a value that differs.
func put[M ~map[K]V, K comparable, V any](m *M, key K, value V) bool {
	if *m == nil {
		*m = make(M)
	}
	(*m)[key] = value
	return true
}
