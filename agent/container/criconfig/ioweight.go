package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// fileIOWeight is the kernel's file for a cgroup's share of disk I/O: 1 to
// 10000, 100 by default.
const fileIOWeight = "io.weight"

// setIOWeight sets the pod's io.weight by its priority, which the kubelet does not
// do: 50 below 0, 200 above 0, 400 for a critical pod.
func setIOWeight(files map[string]string, p *v1.Pod, n *Node) {
	if !n.IOWeights {
		return
	}
	weight := 100
	switch priority := p.Spec.Priority; {
	case pod.IsCritical(p):
		weight = 400
	case priority == nil || *priority == 0:
	case *priority > 0:
		weight = 200
	default:
		weight = 50
	}
	files[fileIOWeight] = strconv.Itoa(weight)
}
