package criconfig

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// portMappings returns the ports of all containers, without those of init containers. The
// runtime uses those with a host port. Within a container it omits a port with the name of an
// earlier one, or without a name one with the same fields (MakePortMappings in
// pkg/kubelet/container/helpers.go).
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for i := range p.Spec.Containers {
		seen := map[string]bool{}
		for _, port := range p.Spec.Containers[i].Ports {
			key := portKey(port)
			if seen[key] {
				continue
			}
			seen[key] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]), // TCP if unknown
				ContainerPort: port.ContainerPort,
				HostPort:      port.HostPort,
				HostIp:        port.HostIP,
			})
		}
	}
	return out
}

func portKey(port v1.ContainerPort) string {
	if port.Name != "" {
		return port.Name
	}
	family := "any"
	switch {
	case strings.Contains(port.HostIP, ":"):
		family = "v6"
	case port.HostIP != "":
		family = "v4"
	}
	return fmt.Sprintf("%s-%s-%s:%d:%d", family, port.Protocol, port.HostIP, port.ContainerPort, port.HostPort)
}
