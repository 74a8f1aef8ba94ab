package nodestatus

import (
	"cmp"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Update returns the current state of an existing node: its status, its platform
// labels, and the annotation that passes --node-ip to an external cloud provider.
// changed reports whether more than heartbeats differs; then the node should be
// sent before the next report is due (updateNode in
// pkg/kubelet/kubelet_node_status.go).
//
// The error names what could not be determined and therefore did not change. The
// caller should log it and send the node anyway.
func Update(existing *v1.Node, in *Inputs) (n *v1.Node, changed bool, err error) {
	n = existing.DeepCopy()
	for label, value := range map[string]string{v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH} {
		changed = set(&n.Labels, label, value) || changed
	}
	err = fill(n, in)
	changed = changed || n.Annotations[annotationProvidedIP] != existing.Annotations[annotationProvidedIP] ||
		Changed(&existing.Status, &n.Status)
	return n, changed, err
}

// set sets a label or an annotation, and reports whether that changed it.
func set(m *map[string]string, key, value string) (changed bool) {
	if had, ok := (*m)[key]; ok && had == value {
		return false
	}
	return put(m, key, value)
}

// fill sets what changes while a node is registered.
func fill(n *v1.Node, in *Inputs) error {
	provideIP(n, in)
	status, err := Status(&n.Status, in)
	n.Status = status
	return err
}

// provideIP sets the annotation that passes --node-ip to an external cloud
// provider. It removes the annotation if there is no such provider or if the first
// node IP is not a specific address. With invalid node IPs it changes nothing.
func provideIP(n *v1.Node, in *Inputs) {
	ips := specified(in.Config.NodeIPs)
	if checkNodeIPs(ips, in.HostIPs) != nil {
		return
	}
	if in.Config.CloudProvider != cloudExternal || !firstSpecified(in.Config.NodeIPs) {
		delete(n.Annotations, annotationProvidedIP)
		return
	}
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	set(&n.Annotations, annotationProvidedIP, strings.Join(texts, ","))
}

// Status returns the node's status, computed from the one that the API server has,
// or nil (setNodeStatus in pkg/kubelet/kubelet_node_status.go). Volumes in use,
// attached volumes, and conditions and resources of others stay.
//
// The error names what could not be determined and therefore did not change. The
// returned status is valid in any case.
func Status(old *v1.NodeStatus, in *Inputs) (v1.NodeStatus, error) {
	var s v1.NodeStatus
	if old != nil {
		old.DeepCopyInto(&s)
	}
	list, addressErr := addresses(s.Addresses, in)
	s.Addresses = list
	resourceErr := resources(&s, in)
	info(&s.NodeInfo, in)
	s.DaemonEndpoints.KubeletEndpoint.Port = in.Config.Kubelet.Port
	images(&s, in)
	handlers(&s, in)
	s.Config = nil // Kubernetes 1.22 removed dynamic configuration
	s.DeclaredFeatures = slices.Compact(slices.Sorted(slices.Values(in.DeclaredFeatures)))
	conditions(&s, in)
	return s, errors.Join(addressErr, resourceErr)
}

// Changed reports whether two statuses differ in more than heartbeats and the order
// of conditions (nodeStatusHasChanged in pkg/kubelet/kubelet_node_status.go).
func Changed(before, after *v1.NodeStatus) bool {
	a, b := *before, *after
	a.Conditions, b.Conditions = withoutHeartbeats(a.Conditions), withoutHeartbeats(b.Conditions)
	return !equality.Semantic.DeepEqual(&a, &b)
}

func withoutHeartbeats(list []v1.NodeCondition) []v1.NodeCondition {
	sorted := slices.SortedStableFunc(slices.Values(list), func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	for i := range sorted {
		sorted[i].LastHeartbeatTime = metav1.Time{}
	}
	return sorted
}
