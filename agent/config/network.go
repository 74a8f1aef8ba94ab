package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// Network configures the pod network.
type Network struct {
	// Mode is
	//   - bridge: pods are on a bridge of the node, and their traffic beyond it
	//     is masqueraded with the node's address;
	//   - routed: as bridge, but traffic to other nodes' pods on the same link
	//     keeps the pod's address and uses routes that follow the Node objects;
	//   - host: there is no pod network, and only pods with hostNetwork start;
	//   - cni: a configuration in ConfigFolder that is not tinylet's is used
	//     unchanged.
	//
	// Default: bridge, or cni if ConfigFolder has a configuration that is not
	// tinylet's
	Mode string `json:"mode,omitempty"`
	// PodCIDRs are the networks of the node's pods: one of IPv4, one of IPv6,
	// or one of each.
	//
	// Default: the podCIDRs of the Node; on a standalone node
	// KubeletConfiguration's podCIDR, or 10.88.0.0/24
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// Bridge is the name of the pods' bridge. A new name takes effect once no
	// pod uses the former bridge.
	//
	// Default: tinylet0
	Bridge string `json:"bridge,omitempty"`
	// MTU is the MTU of the pods' interfaces, in bytes. 0 means the MTU of the
	// uplink interface when the pod starts.
	//
	// Default: 0
	MTU int32 `json:"mtu,omitempty"`
	// Services enables the node's own Service proxy, so that it needs no
	// kube-proxy. The node then watches Services and EndpointSlices.
	//
	// Default: false
	Services bool `json:"services,omitempty"`
	// ConfigFolder is the CNI configuration directory of the container runtime.
	//
	// Default: the directory that the runtime reports, or else /etc/cni/net.d
	ConfigFolder string `json:"configFolder,omitempty"`
	// PluginFolder is the CNI plugin directory of the container runtime. The
	// agent maintains there a link tinylet-cni to its own binary, and a script
	// loopback if the runtime calls that plugin and it is missing.
	//
	// Default: the directory that the runtime reports, or else /opt/cni/bin
	PluginFolder string `json:"pluginFolder,omitempty"`
}

// Values of Network.Mode. Empty means that the mode is not determined yet.
const (
	NetworkBridge = "bridge"
	NetworkRouted = "routed"
	NetworkHost   = "host"
	NetworkCNI    = "cni"
)

// Defaults and limits of Network.
const (
	DefaultBridge       = "tinylet0"
	DefaultConfigFolder = "/etc/cni/net.d"
	DefaultPluginFolder = "/opt/cni/bin"
	DefaultPodCIDR      = "10.88.0.0/24"
	minMTU              = 1280 // of IPv6, RFC 8200
	maxInterfaceName    = 15   // IFNAMSIZ in linux/if.h, without the terminating NUL
)

// PodCIDRs returns the configured networks of the node's pods. Nil means that the Node
// object has them. On a standalone node without a setting it returns FallbackPodCIDRs.
// cfg must be valid.
func (cfg *Config) PodCIDRs() []netip.Prefix {
	if texts := cfg.Tinylet.Network.PodCIDRs; len(texts) > 0 {
		return parsePrefixes(texts)
	}
	if cfg.Kubeconfig != "" {
		return nil
	}
	if cfg.Kubelet.PodCIDR != "" {
		return parsePrefixes(strings.Split(cfg.Kubelet.PodCIDR, ","))
	}
	return FallbackPodCIDRs()
}

// FallbackPodCIDRs returns the networks of a node's pods where neither the configuration nor
// the API server gives any.
func FallbackPodCIDRs() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(DefaultPodCIDR)} }

// parsePrefixes returns the valid prefixes of a list, without their host bits.
func parsePrefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}

func (c *checker) podNetwork(cfg *Config) {
	const path = "TinyletConfiguration.network."
	n := &cfg.Tinylet.Network
	if n.Mode != "" {
		c.oneOf(path+"mode", n.Mode, NetworkBridge, NetworkRouted, NetworkHost, NetworkCNI)
	}
	if n.Mode == NetworkRouted && cfg.Kubeconfig == "" {
		c.invalid(path+"mode", n.Mode, "another mode on a standalone node: the routes follow the Node objects of an API server (--kubeconfig)")
	}
	if n.Services && (n.Mode == NetworkHost || n.Mode == NetworkCNI || cfg.Kubeconfig == "") {
		c.invalid(path+"services", true, "false except on a joined node with the mode bridge or routed")
	}
	c.podCIDRs(path+"podCIDRs", n.PodCIDRs)
	c.podCIDR(cfg)
	if name := n.Bridge; len(name) > maxInterfaceName || name == "." || name == ".." || strings.ContainsFunc(name, notInName) {
		c.invalid(path+"bridge", name, fmt.Sprintf("the name of an interface: at most %d letters, digits, -, _ and .", maxInterfaceName))
	}
	if n.MTU != 0 {
		c.between(path+"mtu", int64(n.MTU), minMTU, 65535)
	}
	c.absolute(path+"configFolder", n.ConfigFolder)
	c.absolute(path+"pluginFolder", n.PluginFolder)
}

// podCIDR checks KubeletConfiguration's podCIDR, of which only the syntax matters if it is
// not used.
func (c *checker) podCIDR(cfg *Config) {
	if cfg.Kubelet.PodCIDR == "" {
		return
	}
	texts := strings.Split(cfg.Kubelet.PodCIDR, ",")
	if len(cfg.Tinylet.Network.PodCIDRs) == 0 && cfg.Kubeconfig == "" {
		c.podCIDRs("podCIDR", texts)
		return
	}
	for _, text := range texts {
		if _, err := netip.ParsePrefix(text); err != nil {
			c.invalid("podCIDR", text, "a network such as 10.244.1.0/24")
		}
	}
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
}

// podCIDRs checks the networks of a node's pods: at most one of each family, each
// large enough for pods.
func (c *checker) podCIDRs(path string, texts []string) {
	families := map[bool]bool{}
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil || prefix.Addr().Is4In6():
			c.invalid(path, text, "a network such as 10.88.0.0/24 or fd00:88::/64")
			continue
		case prefix != prefix.Masked():
			c.invalid(path, text, fmt.Sprintf("the network itself, %v", prefix.Masked()))
		case prefix.Addr().BitLen()-prefix.Bits() < 2:
			c.invalid(path, text, "a network with room for pods: two host bits or more")
		case prefix.Addr().IsUnspecified() || prefix.Addr().IsMulticast() || prefix.Addr().IsLoopback() || prefix.Addr().IsLinkLocalUnicast():
			c.invalid(path, text, "a network of addresses that other hosts can reach")
		}
		if families[prefix.Addr().Is4()] {
			c.invalid(path, text, "at most one network of IPv4 and one of IPv6")
		}
		families[prefix.Addr().Is4()] = true
	}
}
