package criconfig

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HostsFile returns the content of /etc/hosts in the pod's containers: loopback and the pod's
// own name at its addresses, or on the host network the node's file, nodeHosts; then
// spec.hostAliases. The first line is the kubelet's. Kubernetes' conformance tests check it.
// It fails if the pod's hostname is invalid.
func HostsFile(p *v1.Pod, n *Node, podIPs []string, nodeHosts []byte) ([]byte, error) {
	var out bytes.Buffer
	if p.Spec.HostNetwork {
		out.WriteString("# Kubernetes-managed hosts file (host network).\n")
		out.Write(nodeHosts)
	} else {
		name, domain, err := hostnameOf(p, n)
		if err != nil {
			return nil, err
		}
		names := name
		if domain != "" {
			names = name + "." + domain + "\t" + name
		}
		out.WriteString("# Kubernetes-managed hosts file.\n")
		out.WriteString(loopbackHosts)
		for _, ip := range podIPs {
			fmt.Fprintf(&out, "%s\t%s\n", ip, names)
		}
	}
	if len(p.Spec.HostAliases) > 0 {
		out.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range p.Spec.HostAliases {
			fmt.Fprintf(&out, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	return out.Bytes(), nil
}

// loopbackHosts are the entries of every pod that is not on the host network, as in the
// kubelet.
const loopbackHosts = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"
