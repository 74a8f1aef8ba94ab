package criconfig

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// masterNamespace and masterName identify the API server's service. Every pod gets its
// variables.
const (
	masterNamespace = "default"
	masterName      = "kubernetes"
)

// ServiceNamespaces returns the namespaces of the services of which the environment of a pod's
// containers has variables.
func ServiceNamespaces(p *v1.Pod) []string {
	if p.Namespace == masterNamespace || !serviceLinks(p) {
		return []string{masterNamespace}
	}
	return []string{masterNamespace, p.Namespace}
}

// serviceLinks returns enableServiceLinks, which defaults to true.
func serviceLinks(p *v1.Pod) bool { return ptr.Deref(p.Spec.EnableServiceLinks, true) }

// serviceEnv returns the service variables of a container: always those of the
// API server's service, and those of its pod's namespace if the pod has service
// links. A service in the pod's namespace replaces the API server's of the same name
// (getServiceEnvVarMap in pkg/kubelet/kubelet_pods.go and pkg/kubelet/envvars). Services
// without a cluster IP or without ports have none.
func serviceEnv(p *v1.Pod, services []*v1.Service) map[string]string {
	chosen := make(map[string]*v1.Service)
	for _, s := range services {
		if ip := s.Spec.ClusterIP; ip == "" || ip == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		switch {
		case s.Namespace == p.Namespace && serviceLinks(p):
			chosen[s.Name] = s
		case s.Namespace == masterNamespace && s.Name == masterName && chosen[s.Name] == nil:
			chosen[s.Name] = s
		}
	}
	env := make(map[string]string)
	for _, s := range chosen {
		describeService(env, s)
	}
	return env
}

func describeService(env map[string]string, s *v1.Service) {
	prefix := variableName(s.Name)
	host, first := s.Spec.ClusterIP, &s.Spec.Ports[0]
	env[prefix+"_SERVICE_HOST"] = host
	env[prefix+"_SERVICE_PORT"] = portText(first.Port)
	env[prefix+"_PORT"] = linkURL(host, first)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.Name != "" {
			env[prefix+"_SERVICE_PORT_"+variableName(port.Name)] = portText(port.Port)
		}
		// These are the same as those of Docker's former container links.
		link := prefix + "_PORT_" + portText(port.Port) + "_" + strings.ToUpper(protocolOf(port))
		env[link] = linkURL(host, port)
		env[link+"_PROTO"] = strings.ToLower(protocolOf(port))
		env[link+"_PORT"] = portText(port.Port)
		env[link+"_ADDR"] = host
	}
}

func linkURL(host string, port *v1.ServicePort) string {
	return strings.ToLower(protocolOf(port)) + "://" + net.JoinHostPort(host, portText(port.Port))
}

// protocolOf returns the protocol of a port, TCP by default.
func protocolOf(port *v1.ServicePort) string { return string(cmp.Or(port.Protocol, v1.ProtocolTCP)) }

func portText(port int32) string { return strconv.Itoa(int(port)) }

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
