package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// fileIOWeight is the kernel's file of the share that a group has of a disk:
// 1 to 10000, 100 where nobody sets it.
const fileIOWeight = "io.weight"

// weighIO gives the pod its share of the disks by its priority, which no
// kubelet does: half of the usual below 0, twice it above, four times for the
// system's own pods.
func weighIO(files map[string]string, p *v1.Pod, n *Node) {
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
