package admission

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// allAddresses is the host IP of a port that does not set one.
const allAddresses = "0.0.0.0"

// hostPortsFree reports whether no other pod has a host port that conflicts with one
// of the pod's.
func hostPortsFree(p *v1.Pod, others []*v1.Pod) bool {
	return !anyHostPort(p, func(port *v1.ContainerPort) bool {
		for _, other := range others {
			if other.UID == p.UID {
				continue
			}
			if anyHostPort(other, func(taken *v1.ContainerPort) bool { return conflict(port, taken) }) {
				return true
			}
		}
		return false
	})
}

// anyHostPort reports whether f returns true for one of the pod's host ports. It
// checks the containers and the restartable init containers (sidecars), which
// hold their ports for as long as the pod runs.
func anyHostPort(p *v1.Pod, f func(*v1.ContainerPort) bool) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsRestartableInit(c) && anyPort(c, f) {
			return true
		}
	}
	for i := range p.Spec.Containers {
		if anyPort(&p.Spec.Containers[i], f) {
			return true
		}
	}
	return false
}

// checkAgentPorts rejects host ports that the agent listens on: the hostPort rule
// would redirect packets to the pod before they reach the agent's listener. With
// hostNetwork the kernel returns "address in use", as under a kubelet.
func checkAgentPorts(p *v1.Pod, node *nodeinfo.Admission) *Rejection {
	if p.Spec.HostNetwork {
		return nil
	}
	var own int32
	if !anyHostPort(p, func(port *v1.ContainerPort) bool {
		own = port.HostPort
		return protocol(port) == v1.ProtocolTCP && own <= 65535 && slices.Contains(node.AgentPorts, uint16(own))
	}) {
		return nil
	}
	return failedPredicate(ReasonNodePorts, fmt.Sprintf("host port %d is in use by the node agent: give the pod another hostPort", own))
}

func anyPort(c *v1.Container, f func(*v1.ContainerPort) bool) bool {
	for i := range c.Ports {
		if port := &c.Ports[i]; port.HostPort > 0 && f(port) {
			return true
		}
	}
	return false
}

func conflict(a, b *v1.ContainerPort) bool {
	if a.HostPort != b.HostPort || protocol(a) != protocol(b) {
		return false
	}
	x, y := address(a), address(b)
	return x == y || x == allAddresses || y == allAddresses
}

func protocol(port *v1.ContainerPort) v1.Protocol {
	if port.Protocol == "" {
		return v1.ProtocolTCP
	}
	return port.Protocol
}

func address(port *v1.ContainerPort) string {
	if port.HostIP == "" {
		return allAddresses
	}
	return port.HostIP
}
