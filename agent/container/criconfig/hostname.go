package criconfig

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	maxHostname = 63 // the kubelet's limit, a DNS label
	maxFQDN     = 64 // the kernel's __NEW_UTS_LEN
)

// hostnameOf returns the pod's hostname, truncated to maxHostname, and its domain. The domain
// is "" without a subdomain and with hostnameOverride (GeneratePodHostNameAndDomain in
// pkg/kubelet/kubelet_pods.go, which has the same error texts).
func hostnameOf(p *v1.Pod, n *Node) (name, domain string, err error) {
	if o := p.Spec.HostnameOverride; o != nil {
		if msgs := validation.IsDNS1123Subdomain(*o); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(msgs, ";"))
		}
		name, err = shorten(*o)
		return name, "", err
	}
	name = p.Name
	if h := p.Spec.Hostname; h != "" {
		if msgs := validation.IsDNS1123Label(h); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", h, strings.Join(msgs, ";"))
		}
		name = h
	}
	if name, err = shorten(name); err != nil {
		return "", "", err
	}
	if s := p.Spec.Subdomain; s != "" {
		if msgs := validation.IsDNS1123Label(s); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", s, strings.Join(msgs, ";"))
		}
		domain = s + "." + p.Namespace + ".svc." + n.ClusterDomain
	}
	return name, domain, nil
}

func shorten(name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	short := strings.TrimRight(name[:maxHostname], "-.")
	if short == "" {
		return "", fmt.Errorf("truncate hostname %q: only dashes and dots remain", name)
	}
	return short, nil
}

// kernelHostname returns the host name that uname shows in the pod.
func kernelHostname(p *v1.Pod, n *Node) (string, error) {
	name, domain, err := hostnameOf(p, n)
	if err != nil || domain == "" || p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN {
		return name, err
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
