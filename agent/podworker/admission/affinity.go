package admission

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// matchesNode reports whether the node matches the pod's nodeSelector and its
// required node affinity.
func matchesNode(p *v1.Pod, node *nodeinfo.Admission) bool {
	for key, required := range p.Spec.NodeSelector {
		if value, ok := label(node, key); !ok || value != required {
			return false
		}
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if matchesTerm(&terms[i], node) {
			return true
		}
	}
	return false
}

// matchesTerm reports whether the node meets all requirements of a term. An
// empty or invalid term matches no node.
func matchesTerm(term *v1.NodeSelectorTerm, node *nodeinfo.Admission) bool {
	for i := range term.MatchExpressions {
		if !matchesLabel(&term.MatchExpressions[i], node) {
			return false
		}
	}
	for i := range term.MatchFields {
		if !matchesField(&term.MatchFields[i], node) {
			return false
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0
}

// label returns the value of a label of the node, and whether the node has it.
func label(n *nodeinfo.Admission, key string) (string, bool) {
	if value, ok := n.Labels[key]; ok {
		return value, true
	}
	switch key {
	case v1.LabelHostname:
		return n.Name, true
	case v1.LabelOSStable, labelOSBeta:
		return n.OS, true
	case v1.LabelArchStable, labelArchBeta:
		return n.Arch, true
	}
	return "", false
}

// Labels from before 1.14 that kubelets still set.
const (
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"
)

var operators = map[v1.NodeSelectorOperator]selection.Operator{
	v1.NodeSelectorOpIn:           selection.In,
	v1.NodeSelectorOpNotIn:        selection.NotIn,
	v1.NodeSelectorOpExists:       selection.Exists,
	v1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	v1.NodeSelectorOpGt:           selection.GreaterThan,
	v1.NodeSelectorOpLt:           selection.LessThan,
}

func matchesLabel(r *v1.NodeSelectorRequirement, node *nodeinfo.Admission) bool {
	operator, ok := operators[r.Operator]
	if !ok {
		return false
	}
	requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
	if err != nil {
		return false
	}
	set := labels.Set{}
	if value, ok := label(node, r.Key); ok {
		set[r.Key] = value
	}
	return requirement.Matches(set)
}

// matchesField reports whether the node meets a requirement on a field. The only
// field is metadata.name.
func matchesField(r *v1.NodeSelectorRequirement, node *nodeinfo.Admission) bool {
	if len(r.Values) != 1 {
		return false
	}
	value := ""
	if r.Key == "metadata.name" {
		value = node.Name
	}
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		return value == r.Values[0]
	case v1.NodeSelectorOpNotIn:
		return value != r.Values[0]
	default:
		return false
	}
}

// toleratesNode reports whether the pod tolerates each taint that would evict it
// again: like the kubelet, it checks only the effect NoExecute.
func toleratesNode(p *v1.Pod, node *nodeinfo.Admission) bool {
	for i := range node.Taints {
		if t := &node.Taints[i]; t.Effect == v1.TaintEffectNoExecute && !pod.Tolerates(p, t) {
			return false
		}
	}
	return true
}
