package admission

import (
	"cmp"
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
	own := hostPorts(p)
	for _, other := range others {
		if len(own) == 0 || other.UID == p.UID {
			continue
		}
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(own, func(port *v1.ContainerPort) bool { return conflict(port, taken) }) {
				return false
			}
		}
	}
	return true
}

// hostPorts returns the pod's host ports: those of the containers and of the
// restartable init containers (sidecars), which hold their ports for as long as the
// pod runs.
func hostPorts(p *v1.Pod) (ports []*v1.ContainerPort) {
	for c, kind := range pod.Containers(&p.Spec) {
		if kind == pod.Ephemeral || kind == pod.Init && !pod.IsRestartableInit(c) {
			continue
		}
		for i := range c.Ports {
			if c.Ports[i].HostPort > 0 {
				ports = append(ports, &c.Ports[i])
			}
		}
	}
	return ports
}

// checkAgentPorts rejects host ports that the agent listens on: the hostPort rule
// would redirect packets to the pod before they reach the agent's listener. With
// hostNetwork the kernel returns "address in use", as under a kubelet.
func checkAgentPorts(p *v1.Pod, node *nodeinfo.Admission) *Rejection {
	if p.Spec.HostNetwork {
		return nil
	}
	for _, port := range hostPorts(p) {
		if own := port.HostPort; protocol(port) == v1.ProtocolTCP && own <= 65535 && slices.Contains(node.AgentPorts, uint16(own)) {
			return failedPredicate(ReasonNodePorts, fmt.Sprintf("host port %d is in use by the node agent: give the pod another hostPort", own))
		}
	}
	return nil
}

func conflict(a, b *v1.ContainerPort) bool {
	if a.HostPort != b.HostPort || protocol(a) != protocol(b) {
		return false
	}
	x, y := address(a), address(b)
	return x == y || x == allAddresses || y == allAddresses
}

func protocol(port *v1.ContainerPort) v1.Protocol { return cmp.Or(port.Protocol, v1.ProtocolTCP) }

func address(port *v1.ContainerPort) string { return cmp.Or(port.HostIP, allAddresses) }
