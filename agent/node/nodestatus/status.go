package nodestatus

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Status is the node's status, made from the one that the API server has, or
// nil (setNodeStatus in pkg/kubelet/kubelet_node_status.go). Volumes in use
// and attached, conditions of others and resources of others stay as they
// are.
//
// The error tells what could not be found out and therefore stayed as it was;
// the status is fit to be sent in any case.
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
	s.Config = nil // Kubernetes 1.22 took dynamic configuration away
	s.DeclaredFeatures = slices.Compact(slices.Sorted(slices.Values(in.DeclaredFeatures)))
	conditions(&s, in)
	return s, errors.Join(addressErr, resourceErr)
}
