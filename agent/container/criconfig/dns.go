package criconfig

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kubernetes' limits on a pod's resolv.conf
// (pkg/apis/core/validation/validation.go).
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// ParseResolvConf parses a resolv.conf. Name servers accumulate. The last search line and
// the last value of an option replace earlier ones. Unknown lines are ignored, as resolvers
// do.
func ParseResolvConf(raw []byte) *runtimeapi.DNSConfig {
	dns := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 1 {
			continue
		}
		switch values := fields[1:]; fields[0] {
		case "nameserver":
			if len(values) > 0 {
				dns.Servers = append(dns.Servers, values[0])
			}
		case "search":
			dns.Searches = nil
			for _, s := range values {
				if s != "." {
					dns.Searches = append(dns.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range values {
				dns.Options = setOption(dns.Options, o)
			}
		}
	}
	return dns
}

// setOption replaces the option of that name in place, or appends it.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if old, _, _ := strings.Cut(o, ":"); old == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

// dnsOf returns the pod's resolv.conf by its dnsPolicy and dnsConfig
// (pkg/kubelet/network/dns/dns.go). It omits entries beyond the limits, and reports that in
// the warnings.
func dnsOf(p *v1.Pod, n *Node) (*runtimeapi.DNSConfig, []Warning) {
	dns := baseDNS(p, n)
	if c := p.Spec.DNSConfig; c != nil {
		dns.Servers = unique(append(dns.Servers, c.Nameservers...))
		dns.Searches = unique(append(dns.Searches, c.Searches...))
		for _, o := range c.Options {
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			dns.Options = setOption(dns.Options, option)
		}
	}
	var warnings []Warning
	if len(dns.Servers) > maxServers {
		dns.Servers = dns.Servers[:maxServers]
		warnings = append(warnings, Warning{reasonDNS, fmt.Sprintf(
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: %s",
			strings.Join(dns.Servers, " "))})
	}
	asked := len(dns.Searches)
	if dns.Searches = fitSearches(dns.Searches); len(dns.Searches) < asked {
		warnings = append(warnings, Warning{reasonDNS, fmt.Sprintf(
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: %s",
			strings.Join(dns.Searches, " "))})
	}
	return dns, warnings
}

func baseDNS(p *v1.Pod, n *Node) *runtimeapi.DNSConfig {
	switch {
	case p.Spec.DNSPolicy == v1.DNSNone:
		return &runtimeapi.DNSConfig{}
	case usesClusterDNS(p) && len(n.ClusterDNS) > 0:
		return &runtimeapi.DNSConfig{
			Servers:  slices.Clone(n.ClusterDNS),
			Searches: clusterSearches(p.Namespace, n),
			Options:  []string{"ndots:5"},
		}
	case n.Resolv == nil:
		return &runtimeapi.DNSConfig{Servers: localResolvers(n.HostIPs), Searches: []string{"."}}
	}
	return proto.CloneOf(n.Resolv)
}

// usesClusterDNS reports whether the pod uses cluster DNS: with ClusterFirst
// without host network, with ClusterFirstWithHostNet, and with a policy that
// the API server would reject, as in the kubelet.
func usesClusterDNS(p *v1.Pod) bool {
	policy := p.Spec.DNSPolicy
	if policy == v1.DNSClusterFirst || policy == "" {
		return !p.Spec.HostNetwork
	}
	return policy != v1.DNSDefault
}

func clusterSearches(namespace string, n *Node) []string {
	d := n.ClusterDomain
	if d == "" {
		return slices.Clone(n.Resolv.GetSearches())
	}
	return unique(append([]string{namespace + ".svc." + d, "svc." + d, d}, n.Resolv.GetSearches()...))
}

// localResolvers returns a resolver on the node itself for each of the node's
// addresses, of the same family.
func localResolvers(hostIPs []string) []string {
	var servers []string
	for _, ip := range hostIPs {
		if strings.Contains(ip, ":") {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1"}
	}
	return servers
}

// fitSearches drops what exceeds the limits. Of the first maxSearches domains it keeps those
// that are not longer than a DNS name may be, and as many as fit in one line.
func fitSearches(searches []string) []string {
	searches = slices.DeleteFunc(searches[:min(len(searches), maxSearches)], func(s string) bool {
		return len(s) > validation.DNS1123SubdomainMaxLength
	})
	for len(strings.Join(searches, " ")) > maxSearchChars {
		searches = searches[:len(searches)-1]
	}
	return searches
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
