package nodestatus

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/node/machine"
)

// These have no exported constants outside of k8s.io/kubernetes and
// k8s.io/cloud-provider (pkg/volume/util/attach_limit.go and
// k8s.io/cloud-provider/api/well_known_*.go).
const (
	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	annotationProvidedIP   = "alpha.kubernetes.io/provided-node-ip"
	taintUninitialized     = "node.cloudprovider.kubernetes.io/uninitialized"
)

const cloudExternal = "external"

// Initial returns the node to create at the API server (initialNode in
// pkg/kubelet/kubelet_node_status.go). The error is that of Update: the returned
// node is valid in any case.
func Initial(in *Inputs) (*v1.Node, error) {
	cfg := in.Config
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   cfg.NodeName,
		Labels: machine.Labels(cfg.NodeName, cfg.NodeLabels),
	}}
	for i := range cfg.Kubelet.RegisterWithTaints {
		n.Spec.Taints = append(n.Spec.Taints, *cfg.Kubelet.RegisterWithTaints[i].DeepCopy())
	}
	if cfg.CloudProvider == cloudExternal {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	if attach := cfg.Kubelet.EnableControllerAttachDetach; attach == nil || *attach {
		n.Annotations = map[string]string{annotationAttachDetach: "true"}
	}
	n.Spec.ProviderID = cfg.Kubelet.ProviderID
	return n, fill(n, in)
}
