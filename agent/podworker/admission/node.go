package admission

import v1 "k8s.io/api/core/v1"

// Node is what pods are checked against: what a kubelet reads from its Node
// object, its configuration and its kernel.
type Node struct {
	// Name is the node's name.
	Name string
	// Labels are the Node's. Those that a kubelet sets itself (the host's
	// name, the operating system and the architecture) need not be there.
	Labels map[string]string
	// Unconfirmed says that Labels and Taints are not the API server's: a pod
	// that it has sent here is then not measured by them.
	Unconfirmed bool
	// Taints are the Node's.
	Taints []v1.Taint
	// OS and Arch are Go's names: linux; arm64, arm, amd64.
	OS, Arch string
	// Allocatable is what pods may request together. A resource that is not
	// there is one that the node has none of.
	Allocatable v1.ResourceList
	// MaxPods is how many pods may run at one time.
	MaxPods int
	// OwnPorts are the ports of TCP that the agent listens on: no pod of a network
	// of its own has them of the host.
	OwnPorts []uint16
	// Kernel is the kernel's release, such as 6.12.41-v8+. It decides which
	// sysctls are safe.
	Kernel string
	// AllowedUnsafeSysctls are names, and patterns that end in *, that pods
	// may set beside the safe ones.
	AllowedUnsafeSysctls []string
	// AppArmor says that the kernel has it and that it is on.
	AppArmor bool
	// NoStrictGroups says that the runtime has answered and cannot do
	// supplementalGroupsPolicy: Strict. It is not set while the runtime has
	// not answered: a refusal is for good.
	NoStrictGroups bool
}

// label is the value of one of the node's labels.
func (n *Node) label(key string) (string, bool) {
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
