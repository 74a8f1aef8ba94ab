package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
)

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
