package criconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	s := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	s.Namespace, s.Name = namespace, name
	return s
}

func TestServiceEnv(t *testing.T) {
	https := v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}
	no := false
	services := []*v1.Service{
		service("default", "kubernetes", "10.96.0.1", https),
		service("default", "other", "10.96.0.2", https),
		service("ns", "data-base", "fd00::5", v1.ServicePort{Port: 5432}, v1.ServicePort{Name: "dns-x", Port: 53, Protocol: v1.ProtocolUDP}),
		service("ns", "headless", "None", https),
		service("ns", "external", "", https),
		service("ns", "portless", "10.96.0.9"),
		service("third", "x", "10.96.0.3", https),
	}
	master := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
		"KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
	}
	both := map[string]string{
		"DATA_BASE_SERVICE_HOST": "fd00::5", "DATA_BASE_SERVICE_PORT": "5432", "DATA_BASE_SERVICE_PORT_DNS_X": "53",
		"DATA_BASE_PORT": "tcp://[fd00::5]:5432", "DATA_BASE_PORT_5432_TCP": "tcp://[fd00::5]:5432",
		"DATA_BASE_PORT_5432_TCP_PROTO": "tcp", "DATA_BASE_PORT_5432_TCP_PORT": "5432", "DATA_BASE_PORT_5432_TCP_ADDR": "fd00::5",
		"DATA_BASE_PORT_53_UDP": "udp://[fd00::5]:53", "DATA_BASE_PORT_53_UDP_PROTO": "udp",
		"DATA_BASE_PORT_53_UDP_PORT": "53", "DATA_BASE_PORT_53_UDP_ADDR": "fd00::5",
	}
	for k, v := range master {
		both[k] = v
	}
	own := service("ns", "kubernetes", "10.96.0.7", https)
	for _, row := range []struct {
		name     string
		links    *bool
		services []*v1.Service
		want     map[string]string
	}{
		{"links, as by default", nil, services, both},
		{"no links", &no, services, master},
		{"no API server", nil, nil, map[string]string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := podOf(v1.Container{Name: "c"})
			p.Namespace, p.Spec.EnableServiceLinks = "ns", row.links
			if diff := cmp.Diff(row.want, serviceEnv(p, row.services)); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
		})
	}
	for _, order := range [][]*v1.Service{{own, services[0]}, {services[0], own}} {
		p := podOf(v1.Container{Name: "c"})
		p.Namespace = "ns"
		if got := serviceEnv(p, order)["KUBERNETES_SERVICE_HOST"]; got != "10.96.0.7" {
			t.Errorf("host %q, want that of the pod's own namespace", got)
		}
	}
}

// TestServiceVariablesYieldToTheSpec checks that the variables in a container's
// spec win over those of services, and may refer to them.
func TestServiceVariablesYieldToTheSpec(t *testing.T) {
	in := envInput()
	in.Services = []*v1.Service{service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Port: 443})}
	in.Container.EnvFrom = nil
	in.Container.Env = []v1.EnvVar{
		{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"},
		{Name: "URL", Value: "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)/$(KUBERNETES_PORT_443_TCP_PROTO)"},
	}
	e, err := environmentOf(&in)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.values["URL"]; got != "https://10.96.0.1:6443/tcp" {
		t.Errorf("URL=%q", got)
	}
	if e.names[0] != "KUBERNETES_SERVICE_PORT" || e.names[1] != "URL" || e.names[2] != "KUBERNETES_PORT" || e.values["KUBERNETES_SERVICE_HOST"] != "10.96.0.1" {
		t.Errorf("variables %v", e.names)
	}
}

func TestServiceNamespaces(t *testing.T) {
	no := false
	for _, row := range []struct {
		namespace string
		links     *bool
		want      []string
	}{
		{"ns", nil, []string{"default", "ns"}}, {"ns", &no, []string{"default"}}, {"default", nil, []string{"default"}},
	} {
		p := podOf(v1.Container{Name: "c"})
		p.Namespace, p.Spec.EnableServiceLinks = row.namespace, row.links
		if diff := cmp.Diff(row.want, ServiceNamespaces(p)); diff != "" {
			t.Errorf("%s: %s", row.namespace, diff)
		}
	}
}
