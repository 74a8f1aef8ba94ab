package nodestatus

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
)

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
