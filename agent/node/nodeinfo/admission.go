package nodeinfo

import v1 "k8s.io/api/core/v1"

// Admission is the state of the node that pod admission checks. A kubelet reads these
// values from its Node object, its configuration and its kernel.
type Admission struct {
	// Name is the node's name.
	Name string
	// Labels are the labels of the Node object, or those of its registration until it
	// was read. Labels that a kubelet sets (hostname, operating system and architecture)
	// may be missing.
	Labels map[string]string
	// Unconfirmed means that Labels and Taints are not from the API server. A
	// pod from the API server is then not checked against them.
	Unconfirmed bool
	// Taints are the taints of the Node object without those of node.kubernetes.io/, or
	// registerWithTaints until it was read.
	Taints []v1.Taint
	// OS and Arch are Go's names: linux; arm64, arm, amd64.
	OS, Arch string
	// Allocatable is the sum that all pods may request. The node has none of a
	// resource that is missing here.
	Allocatable v1.ResourceList
	// MaxPods is the maximum number of pods that run at one time.
	MaxPods int
	// AgentPorts are the TCP ports that the agent listens on. A pod without
	// hostNetwork cannot have them as host ports.
	AgentPorts []uint16
	// Kernel is the kernel's release, such as 6.12.41-v8+. It decides which
	// sysctls are safe.
	Kernel string
	// AllowedUnsafeSysctls are names, and patterns that end in *, that pods
	// may set in addition to the safe ones.
	AllowedUnsafeSysctls []string
	// AppArmor means that the kernel has AppArmor enabled.
	AppArmor bool
	// NoStrictSupplementalGroups means that the runtime has answered and does not support
	// supplementalGroupsPolicy: Strict. It is false until the runtime has
	// answered, because a rejection is final.
	NoStrictSupplementalGroups bool
}
