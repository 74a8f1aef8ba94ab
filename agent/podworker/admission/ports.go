package admission

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// allAddresses is the host IP that a port without one has.
const allAddresses = "0.0.0.0"

// portsFree says whether none of the others has a host port that the pod
// wants.
func portsFree(p *v1.Pod, others []*v1.Pod) bool {
	return !anyHostPort(p, func(wanted *v1.ContainerPort) bool {
		for _, other := range others {
			if other.UID == p.UID {
				continue
			}
			if anyHostPort(other, func(taken *v1.ContainerPort) bool { return conflict(wanted, taken) }) {
				return true
			}
		}
		return false
	})
}

// anyHostPort says whether f holds for one of the host ports that the pod
// has for as long as it runs: those of its containers and sidecars.
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

// checkOwnPorts keeps the agent's own ports from pods: the rule that leads a
// host port to a pod comes before who listens. On the host's network the
// kernel says that the port is in use, as with a kubelet.
func checkOwnPorts(p *v1.Pod, node *Node) *Rejection {
	if p.Spec.HostNetwork {
		return nil
	}
	var own int32
	if !anyHostPort(p, func(port *v1.ContainerPort) bool {
		own = port.HostPort
		return protocol(port) == v1.ProtocolTCP && own <= 65535 && slices.Contains(node.OwnPorts, uint16(own))
	}) {
		return nil
	}
	return predicate(ReasonNodePorts, fmt.Sprintf("host port %d is one that the node's agent listens on: give the pod another hostPort", own))
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
