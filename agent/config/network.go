package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// Network is how pods get their network.
type Network struct {
	// Mode is
	//   - bridge: pods are on a bridge of the node, and what they send beyond
	//     it has the node's address;
	//   - routed: the same, but other nodes' pods on the same link are reached
	//     with the pod's own address, by routes that follow the Node objects;
	//   - host: pods have the host's network or none: one without hostNetwork
	//     does not start;
	//   - cni: somebody else's configuration in ConfigFolder is left alone.
	//
	// Default: bridge, or cni where ConfigFolder has a configuration that is
	// not tinylet's
	Mode string `json:"mode,omitempty"`
	// PodCIDRs are the networks of the node's pods: one of IPv4, one of IPv6,
	// or one of each.
	//
	// Default: what the API server assigns to the node; on a board alone
	// KubeletConfiguration's podCIDR, or 10.88.0.0/24
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// Bridge is the name of the pods' bridge. Another one is taken when no pod
	// is on that of before.
	//
	// Default: tinylet0
	Bridge string `json:"bridge,omitempty"`
	// MTU of the pods' interfaces, in bytes; 0 is that of the interface to
	// the world when the pod starts.
	//
	// Default: 0
	MTU int32 `json:"mtu,omitempty"`
	// Services has the node carry the addresses of Services itself, so that it
	// needs no kube-proxy. It watches Services and EndpointSlices then.
	//
	// Default: false
	Services bool `json:"services,omitempty"`
	// ConfigFolder is where the container runtime reads network
	// configurations.
	//
	// Default: where the runtime says it does, or else /etc/cni/net.d
	ConfigFolder string `json:"configFolder,omitempty"`
	// PluginFolder is where the container runtime looks for network plugins:
	// a link tinylet-cni to this binary is kept there, and a script loopback
	// where the runtime calls that plugin and there is none.
	//
	// Default: where the runtime says it does, or else /opt/cni/bin
	PluginFolder string `json:"pluginFolder,omitempty"`
}

// Modes of Network. The empty one is not known yet.
const (
	NetworkBridge = "bridge"
	NetworkRouted = "routed"
	NetworkHost   = "host"
	NetworkCNI    = "cni"
)

// Defaults of Network.
const (
	DefaultBridge        = "tinylet0"
	DefaultConfigFolder  = "/etc/cni/net.d"
	DefaultPluginFolder  = "/opt/cni/bin"
	DefaultPodCIDR       = "10.88.0.0/24"
	smallestMTU          = 1280 // of IPv6, RFC 8200
	longestInterfaceName = 15   // IFNAMSIZ in linux/if.h, without its end
)

func setNetworkDefaults(n *Network) {
	fill(&n.Bridge, DefaultBridge)
}

// PodNetworks are the networks of the node's pods as far as they are
// configured: nil leaves them to the API server. The configuration must have
// been validated.
func (cfg *Config) PodNetworks() []netip.Prefix {
	texts := cfg.Tinylet.Network.PodCIDRs
	if len(texts) == 0 && cfg.Kubeconfig == "" {
		texts = []string{DefaultPodCIDR}
		if cfg.Kubelet.PodCIDR != "" {
			texts = strings.Split(cfg.Kubelet.PodCIDR, ",")
		}
	}
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
		c.invalid(path+"mode", n.Mode, "another one on a board alone: the routes follow the Node objects of an API server (--kubeconfig)")
	}
	if n.Services && (n.Mode == NetworkHost || n.Mode == NetworkCNI || cfg.Kubeconfig == "") {
		c.invalid(path+"services", true, "false but on a node of a cluster with the mode bridge or routed")
	}
	c.podCIDRs(path+"podCIDRs", n.PodCIDRs)
	if cfg.Kubelet.PodCIDR != "" && len(n.PodCIDRs) == 0 && cfg.Kubeconfig == "" {
		c.podCIDRs("podCIDR", strings.Split(cfg.Kubelet.PodCIDR, ","))
	}
	if name := n.Bridge; len(name) > longestInterfaceName || name == "." || name == ".." || strings.ContainsFunc(name, notInName) {
		c.invalid(path+"bridge", name, fmt.Sprintf("the name of an interface: at most %d letters, digits, -, _ and .", longestInterfaceName))
	}
	if n.MTU != 0 {
		c.between(path+"mtu", int64(n.MTU), smallestMTU, 65535)
	}
	for name, folder := range map[string]string{"configFolder": n.ConfigFolder, "pluginFolder": n.PluginFolder} {
		if folder != "" && !filepath.IsAbs(folder) {
			c.invalid(path+name, folder, "an absolute path")
		}
	}
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
}

// podCIDRs checks the networks of a node's pods: at most one of a family, with
// room for pods.
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
			c.invalid(path, text, "a network with room for pods: two bits or more beside its prefix")
		case prefix.Addr().IsUnspecified() || prefix.Addr().IsMulticast() || prefix.Addr().IsLoopback() || prefix.Addr().IsLinkLocalUnicast():
			c.invalid(path, text, "a network of addresses that others can reach")
		}
		if families[prefix.Addr().Is4()] {
			c.invalid(path, text, "at most one network of IPv4 and one of IPv6")
		}
		families[prefix.Addr().Is4()] = true
	}
}
