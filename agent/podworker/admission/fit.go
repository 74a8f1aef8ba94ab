package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of rejections are the kubelet's (pkg/kubelet/lifecycle/predicate.go,
// handlers.go, pkg/kubelet/sysctl). The reason for an insufficient resource is
// OutOf and the resource's name.
const (
	ReasonNodeUnknown              = "InvalidNodeInfo"
	ReasonOSSelector               = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                       = "PodOSNotSupported"
	ReasonSupplementalGroupsPolicy = "SupplementalGroupsPolicyNotSupported"
	ReasonUnexpected               = "UnexpectedAdmissionError"
	ReasonNodeAffinity             = "NodeAffinity"
	ReasonNodeName                 = "NodeName"
	ReasonNodePorts                = "NodePorts"
	ReasonTaint                    = "TaintToleration"
	ReasonSysctl                   = "SysctlForbidden"
	ReasonAppArmor                 = "AppArmor"
	ReasonFeature                  = "PodFeatureUnsupported"
	reasonOutOf                    = "OutOf"
	userNamespaceOnHost            = "UserNamespacesHostNetworkSupport"
)

// Reason and messages of a pod that is preempted for a critical one, in its
// status, its events and its condition DisruptionTarget
// (pkg/kubelet/preemption/preemption.go).
const (
	ReasonPreempted           = "Preempting"
	MessagePreempted          = "Preempted in order to admit critical pod"
	PreemptedConditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Rejection is the reason why the node rejects a pod.
type Rejection struct {
	// Reason and Message are those of the event.
	Reason, Message string
	// Preempt lists the pods to kill with ReasonPreempted. If it is not empty,
	// the pod can be admitted once they have ended.
	Preempt []types.UID
}

// Fit checks a pod that is not running yet against the node and the other pods
// that were admitted and have not ended; others may contain the pod itself. Fit
// returns nil if the pod is admitted.
//
// The checks, their order, reasons and messages are the kubelet's, with four
// differences. A critical pod that would be rejected for another reason does not
// preempt other pods first. A static pod that requests an extended resource that
// the node does not have at all is rejected; the kubelet runs it without the
// resource. A host port that the agent listens on is rejected. A pod of the API
// server is not checked against labels and taints that are unconfirmed.
func Fit(p *v1.Pod, node *nodeinfo.Admission, others []*v1.Pod) *Rejection {
	if node == nil {
		return &Rejection{Reason: ReasonNodeUnknown, Message: "Kubelet cannot get node info."}
	}
	if r := checkSysctls(p, node); r != nil {
		return r
	}
	if r := checkOS(p, node); r != nil {
		return r
	}
	if s := p.Spec.SecurityContext; node.NoStrictSupplementalGroups && s != nil && s.SupplementalGroupsPolicy != nil &&
		*s.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return &Rejection{Reason: ReasonSupplementalGroupsPolicy, Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
	short := insufficientResources(p, node, others)
	critical := pod.IsCritical(p)
	if len(short) > 0 && !critical {
		return short[0].rejection()
	}
	if r := checkGeneralPredicates(p, node, others); r != nil {
		return r
	}
	if r := checkAppArmor(p, node); r != nil {
		return r
	}
	if r := checkFeatures(p); r != nil {
		return r
	}
	if len(short) > 0 {
		return preempt(p, others, short)
	}
	return nil
}

// checkOS compares the pod's operating system with the node's. Like the kubelet,
// it compares the pod's label with the node's label, not the pod's nodeSelector.
func checkOS(p *v1.Pod, node *nodeinfo.Admission) *Rejection {
	if osLabel, ok := p.Labels[v1.LabelOSStable]; ok && osLabel != node.OS {
		return &Rejection{Reason: ReasonOSSelector, Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if p.Spec.OS != nil && string(p.Spec.OS.Name) != node.OS {
		return &Rejection{Reason: ReasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// checkGeneralPredicates checks affinity, node name, host ports and taints, but no
// resources.
func checkGeneralPredicates(p *v1.Pod, node *nodeinfo.Admission, others []*v1.Pod) *Rejection {
	own := checkAgentPorts(p, node)
	switch {
	case !matchesNode(p, node) && (pod.IsStatic(p) || !node.Unconfirmed):
		return failedPredicate(ReasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	case p.Spec.NodeName != "" && p.Spec.NodeName != node.Name:
		return failedPredicate(ReasonNodeName, "node(s) didn't match the requested node name")
	case own != nil:
		return own
	case !hostPortsFree(p, others):
		return failedPredicate(ReasonNodePorts, "node(s) didn't have free ports for the requested pod ports")
	case !pod.IsStatic(p) && !node.Unconfirmed && !toleratesNode(p, node):
		return failedPredicate(ReasonTaint, "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

func failedPredicate(name, why string) *Rejection {
	return &Rejection{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

// checkFeatures rejects features that the kubelet's feature gates disable in
// 1.36.
func checkFeatures(p *v1.Pod) *Rejection {
	if p.Spec.HostNetwork && p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
		return &Rejection{Reason: ReasonFeature, Message: "Pod requires node features that are not available: " + userNamespaceOnHost}
	}
	return nil
}
