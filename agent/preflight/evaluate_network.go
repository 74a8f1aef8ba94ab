package preflight

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/config"
	agentnetwork "github.com/tinylet/tinylet/agent/network"
)

// own reports whether tinylet sets up the pod network.
func (n *Network) own() bool {
	return n.Mode == config.NetworkBridge || n.Mode == config.NetworkRouted
}

// hasIPv6 reports whether pods get IPv6 addresses.
func (n *Network) hasIPv6() bool {
	is := func(p netip.Prefix) bool { return p.Addr().Is6() }
	return n.Mode != config.NetworkHost && slices.ContainsFunc(n.Pods, is)
}

func checkNetwork(f *Facts) []Finding {
	n := &f.Network
	out := []Finding{checkNetworkConfig(n)}
	if n.Mode != config.NetworkCNI {
		out = append(out, checkPlugin(n))
	}
	if n.Loopback.Path != "" {
		out = append(out, checkLoopback(n))
	}
	if n.own() {
		out = append(out, checkHostNetwork(n)...)
	}
	return out
}

// checkHostNetwork checks the host's network for conflicts with the pod network. It
// omits what was not read from the kernel.
func checkHostNetwork(n *Network) (out []Finding) {
	switch {
	case len(n.Pods) == 0: // not chosen yet
	case n.Host.Known:
		out = append(out, checkOverlap(n), checkSecondBridge(n))
	case n.Host.Err != "":
		out = append(out, warn("network-overlap", "cannot determine whether networks of the host overlap "+listed(n.Pods)+": "+n.Host.Err,
			"run tinylet check as root; ip address and ip route show the host's networks"))
	}
	switch {
	case n.Host.RulesKnown:
		out = append(out, checkDropping(n))
	case n.Host.RulesErr != "":
		out = append(out, warn("forward-drop", "cannot determine whether another nftables table drops forwarded packets of pods: "+n.Host.RulesErr,
			"run tinylet check as root, on a kernel with nf_tables; nft list ruleset shows the tables"))
	}
	return out
}

// checkNetworkConfig reports which configuration the container runtime uses: the
// first by name.
func checkNetworkConfig(n *Network) Finding {
	const id = "pod-network"
	if n.Err != "" {
		return warn(id, "cannot "+n.Err, "make sure that "+n.ConfigFolder+" (network.configFolder) is a readable directory")
	}
	if n.Mode == config.NetworkCNI {
		if len(n.Others) == len(n.Loopbacks) {
			what := "network.mode is cni, and " + n.ConfigFolder + " has no network configuration"
			if len(n.Loopbacks) > 0 {
				what += " except for the loopback"
			}
			return warn(id, what+": pods wait for one",
				"install one with the cluster's network add-on or with the image, or set network.mode: bridge")
		}
		if slices.Contains(n.Loopbacks, n.Others[0]) {
			return n.loopbackFirst(id)
		}
		return ok(id, "pods use the network of %s, which tinylet does not change", filepath.Join(n.ConfigFolder, n.Others[0]))
	}
	if len(n.Others) > 0 && n.Others[0] < agentnetwork.FileName {
		if slices.Contains(n.Loopbacks, n.Others[0]) {
			return n.loopbackFirst(id)
		}
		file := filepath.Join(n.ConfigFolder, n.Others[0])
		return warn(id, fmt.Sprintf("network.mode is %s, but the container runtime uses %s, because its name sorts before %s", n.Mode, file, agentnetwork.FileName),
			"remove "+file+", or set network.mode: cni")
	}
	switch {
	case n.Mode == config.NetworkHost:
		return ok(id, "only pods with hostNetwork start (network.mode is host)")
	case len(n.Pods) == 0:
		return ok(id, "tinylet sets up the pod network (%s), with the podCIDRs that the API server assigns", n.Mode)
	}
	return ok(id, "tinylet sets up the pod network (%s), %s", n.Mode, listed(n.Pods))
}

// loopbackFirst returns the finding for a loopback-only configuration that the
// runtime uses in place of one with a network.
func (n *Network) loopbackFirst(id string) Finding {
	file := filepath.Join(n.ConfigFolder, n.Others[0])
	return warn(id, fmt.Sprintf("network.mode is %s, but the container runtime uses %s, because its name sorts first: pods get only the loopback interface", n.Mode, file),
		"remove "+file+", or give it a name that sorts last, such as 99-loopback"+filepath.Ext(file))
}

func listed(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, " and ")
}

// checkPlugin checks the plugin that the runtime calls. What the agent repairs when
// it starts is no failure.
func checkPlugin(n *Network) Finding {
	const id = "network-plugin"
	p := &n.Plugin
	remedy := "start tinylet, which creates the link again"
	level := Warn
	if !p.Writable {
		level = Fail
		remedy = "create a link to tinylet when the image is built (ln -s /usr/bin/tinylet " + p.Path + "), or set bin_dirs of containerd to a writable directory"
	}
	switch p.State {
	case PluginInstalled:
		return ok(id, "the container runtime calls %s", p.Path)
	case PluginNotExecutable:
		return fail(id, p.Path+" is not an executable file: pods get no network", "remove it, or make it executable (chmod +x)")
	case PluginDangling:
		return Finding{ID: id, Level: level, What: fmt.Sprintf("%s links to %s, which does not exist: pods get no network", p.Path, p.Target), Remedy: remedy}
	case PluginMissing:
	}
	if p.Writable && !n.Ours {
		return ok(id, "tinylet creates the link %s when it starts", p.Path)
	}
	return Finding{ID: id, Level: level, What: p.Path + " does not exist: pods get no network", Remedy: remedy}
}

// checkLoopback checks the loopback plugin. If the runtime calls it and it is
// missing, no pod without hostNetwork starts. The agent installs it when it starts.
func checkLoopback(n *Network) Finding {
	const id = "loopback-plugin"
	p := &n.Loopback
	switch {
	case p.State == PluginInstalled:
		return ok(id, "the container runtime calls %s", p.Path)
	case p.Writable && !n.Ours:
		return ok(id, "tinylet installs the loopback plugin at %s when it starts", p.Path)
	case p.Writable:
		return warn(id, "the container runtime calls the loopback plugin, and "+p.Path+" is not a program: pods get no network", "start tinylet, which installs it")
	}
	return fail(id, "the container runtime calls the loopback plugin, and "+p.Path+" is not a program and cannot be installed: pods get no network",
		"set use_internal_loopback = true in the cni section of /etc/containerd/config.toml (containerd 2.0 or later), or install the plugin when the image is built")
}

// checkOverlap checks whether networks of the host overlap the pod network. A route
// to a larger network stays usable except for the pods' addresses.
func checkOverlap(n *Network) Finding {
	const id = "network-overlap"
	level := OK
	var found []string
	for i := range n.Host.Used {
		u := &n.Host.Used[i]
		for _, pods := range n.Pods {
			if !u.Network.Overlaps(pods) || u.Bridge && u.Address {
				continue // see checkSecondBridge
			}
			bad, how := Fail, "route"
			if u.Address {
				how = "address"
			} else if u.Network.Bits() < pods.Bits() {
				bad = Warn
			}
			if bad == Fail || level == OK {
				level = bad
			}
			found = append(found, fmt.Sprintf("pod network %s and %s (%s on %s)", pods, u.Network, how, u.Interface))
		}
	}
	if level == OK {
		return ok(id, "no network of the host overlaps %s", listed(n.Pods))
	}
	return Finding{
		ID: id, Level: level, What: "networks overlap, and some of their addresses cannot be reached: " + strings.Join(found, "; "),
		Remedy: "choose another pod network: network.podCIDRs, or in a cluster --cluster-cidr of kube-controller-manager",
	}
}

// checkSecondBridge checks for bridges that an earlier network plugin has left.
func checkSecondBridge(n *Network) Finding {
	const id = "second-bridge"
	var names, found []string
	for i := range n.Host.Used {
		u := &n.Host.Used[i]
		within := func(pods netip.Prefix) bool { return pods.Overlaps(u.Network) }
		if u.Bridge && u.Address && slices.ContainsFunc(n.Pods, within) {
			names = append(names, u.Interface)
			found = append(found, u.Interface+" ("+u.Network.String()+")")
		}
	}
	if found == nil {
		return ok(id, "no bridge except %s has an address in the pod network", n.Bridge)
	}
	slices.Sort(names)
	return warn(id, "in addition to "+n.Bridge+", these bridges have addresses in the pod network "+listed(n.Pods)+", as an earlier network plugin leaves them: "+
		strings.Join(found, ", ")+"; packets to pods may go there",
		"when no container uses it: ip link delete "+strings.Join(slices.Compact(names), ", ip link delete ")+"; or choose another pod network (network.podCIDRs)")
}

func checkDropping(n *Network) Finding {
	const id = "forward-drop"
	if len(n.Host.Dropping) == 0 {
		return ok(id, "no other nftables table drops forwarded packets of pods")
	}
	var names []string
	for _, c := range n.Host.Dropping {
		names = append(names, fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table))
	}
	return warn(id, fmt.Sprintf("forwarded packets are dropped by %s, where no rule names %s: connections of pods may fail", strings.Join(names, ", "), n.Bridge),
		fmt.Sprintf("accept packets from and to %[1]s: with Docker, iptables -I DOCKER-USER -i %[1]s -j ACCEPT and the same with -o; with firewalld, firewall-cmd --permanent --zone=trusted --add-interface=%[1]s; else a rule in that chain", n.Bridge))
}

// networkRemedy returns the remedy while the runtime reports that its network is
// not ready.
func (n *Network) networkRemedy() string {
	if n.Mode == config.NetworkCNI {
		return "install a network configuration in " + n.ConfigFolder + " and its plugins in " + filepath.Dir(n.Plugin.Path) + " or /usr/lib/cni"
	}
	return "start tinylet, which writes " + filepath.Join(n.ConfigFolder, agentnetwork.FileName) + ", and check its log for the pod network; containerd must read that directory (conf_dir in /etc/containerd/config.toml, network.configFolder)"
}
