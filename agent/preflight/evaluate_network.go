package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/config"
)

// own says that tinylet itself makes the pods' network.
func (n *Network) own() bool {
	return n.Mode == config.NetworkBridge || n.Mode == config.NetworkRouted
}

// hasIPv6 says that pods are to have addresses of that.
func (n *Network) hasIPv6() bool {
	is := func(p netip.Prefix) bool { return p.Addr().Is6() }
	return n.Mode != config.NetworkHost && slices.ContainsFunc(n.Pods, is)
}

func judgeNetwork(f *Facts) []Finding {
	n := &f.Network
	out := []Finding{judgeNetworkConfig(n)}
	if n.Mode != config.NetworkCNI {
		out = append(out, judgePlugin(n))
	}
	if n.Loopback.Path != "" {
		out = append(out, judgeLoopback(n))
	}
	if n.own() {
		out = append(out, judgeHostNetwork(n)...)
	}
	return out
}

// judgeHostNetwork judges what the host has beside the pods' network. What the
// kernel was not asked is left out.
func judgeHostNetwork(n *Network) (out []Finding) {
	switch {
	case len(n.Pods) == 0: // as long as nobody has chosen them
	case n.Host.Known:
		out = append(out, judgeOverlap(n), judgeSecondBridge(n))
	case n.Host.Err != "":
		out = append(out, warn("network-overlap", "cannot tell whether the host has networks within "+listed(n.Pods)+": "+n.Host.Err,
			"run tinylet check as root; ip address and ip route show the host's networks"))
	}
	switch {
	case n.Host.RulesKnown:
		out = append(out, judgeDropping(n))
	case n.Host.RulesErr != "":
		out = append(out, warn("forward-drop", "cannot tell whether another table of nftables drops what pods send and get: "+n.Host.RulesErr,
			"run tinylet check as root, on a kernel with nf_tables; nft list ruleset shows the tables"))
	}
	return out
}

// judgeNetworkConfig tells which configuration the container runtime takes:
// the first by name.
func judgeNetworkConfig(n *Network) Finding {
	const id = "pod-network"
	if n.Err != "" {
		return warn(id, "cannot tell which network configurations there are: "+n.Err, "see that "+n.ConfigFolder+" (network.configFolder) is a folder that can be read")
	}
	if n.Mode == config.NetworkCNI {
		if len(n.Others) == len(n.Loopbacks) {
			what := "network.mode is cni, and " + n.ConfigFolder + " has no network configuration"
			if len(n.Loopbacks) > 0 {
				what += " but of the loopback"
			}
			return warn(id, what+": pods wait for one",
				"have the cluster's network add-on or the image put one there, or set network.mode: bridge")
		}
		if slices.Contains(n.Loopbacks, n.Others[0]) {
			return n.loopbackFirst(id)
		}
		return ok(id, "the pods' network is that of %s, which tinylet leaves alone", filepath.Join(n.ConfigFolder, n.Others[0]))
	}
	if len(n.Others) > 0 && n.Others[0] < ownConfig {
		if slices.Contains(n.Loopbacks, n.Others[0]) {
			return n.loopbackFirst(id)
		}
		file := filepath.Join(n.ConfigFolder, n.Others[0])
		return warn(id, fmt.Sprintf("network.mode is %s, but the container runtime takes %s, since its name comes before %s", n.Mode, file, ownConfig),
			"remove "+file+", or set network.mode: cni")
	}
	switch {
	case n.Mode == config.NetworkHost:
		return ok(id, "pods have the host's network (network.mode is host)")
	case len(n.Pods) == 0:
		return ok(id, "tinylet makes the pods' network (%s), of the addresses that the API server assigns", n.Mode)
	}
	return ok(id, "tinylet makes the pods' network (%s), %s", n.Mode, listed(n.Pods))
}

// loopbackFirst is of a configuration without a network that the runtime takes
// in place of one that has one.
func (n *Network) loopbackFirst(id string) Finding {
	file := filepath.Join(n.ConfigFolder, n.Others[0])
	return warn(id, fmt.Sprintf("network.mode is %s, but the container runtime takes %s, since its name comes first: pods get the loopback alone", n.Mode, file),
		"remove "+file+", or give it a name that comes last, such as 99-loopback"+filepath.Ext(file))
}

func listed(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, " and ")
}

// judgePlugin: what the agent puts right when it starts is no failure.
func judgePlugin(n *Network) Finding {
	const id = "network-plugin"
	p := &n.Plugin
	remedy := "start tinylet, which makes the link anew"
	level := Warn
	if !p.Writable {
		level = Fail
		remedy = "put a link to tinylet there when the image is made (ln -s /usr/bin/tinylet " + p.Path + "), or set bin_dirs of containerd to a directory that can be written to"
	}
	switch p.State {
	case PluginThere:
		return ok(id, "the container runtime calls %s", p.Path)
	case PluginInert:
		return fail(id, p.Path+" is no program that can be run: pods get no network", "remove it, or make it executable (chmod +x)")
	case PluginBroken:
		return Finding{ID: id, Level: level, What: fmt.Sprintf("%s leads to %s, which is not there: pods get no network", p.Path, p.Target), Remedy: remedy}
	case PluginMissing:
	}
	if p.Writable && !n.Ours {
		return ok(id, "tinylet links %s when it starts", p.Path)
	}
	return Finding{ID: id, Level: level, What: p.Path + " is not there: pods get no network", Remedy: remedy}
}

// judgeLoopback: without the plugin no pod with a network of its own starts. The
// agent puts one there when it starts.
func judgeLoopback(n *Network) Finding {
	const id = "loopback-plugin"
	p := &n.Loopback
	switch {
	case p.State == PluginThere:
		return ok(id, "the container runtime calls %s", p.Path)
	case p.Writable && !n.Ours:
		return ok(id, "tinylet puts the plugin loopback at %s when it starts", p.Path)
	case p.Writable:
		return warn(id, "the container runtime calls the plugin loopback, and "+p.Path+" is not a program: pods get no network", "start tinylet, which puts it there")
	}
	return fail(id, "the container runtime calls the plugin loopback, and "+p.Path+" is not a program and cannot be made one: pods get no network",
		"set use_internal_loopback = true in the cni section of /etc/containerd/config.toml (containerd 2.0 or later), or put the plugin there when the image is made")
}

// judgeOverlap looks for the host's own networks among the pods' addresses. A
// route to a larger network stays usable but for the pods' addresses.
func judgeOverlap(n *Network) Finding {
	const id = "network-overlap"
	level := OK
	var found []string
	for i := range n.Host.Used {
		u := &n.Host.Used[i]
		for _, pods := range n.Pods {
			if !u.Network.Overlaps(pods) || u.Bridge && u.Address {
				continue // a bridge is another matter
			}
			bad, how := Fail, "a route leads"
			if u.Address {
				how = "the host has an address"
			} else if u.Network.Bits() < pods.Bits() {
				bad = Warn
			}
			level = worse(level, bad)
			found = append(found, fmt.Sprintf("%s of the pods and %s, to which %s over %s", pods, u.Network, how, u.Interface))
		}
	}
	if level == OK {
		return ok(id, "the host has no network of its own within %s", listed(n.Pods))
	}
	return Finding{
		ID: id, Level: level, What: "networks overlap, so that some of their addresses cannot be reached: " + strings.Join(found, "; "),
		Remedy: "give the pods another network: network.podCIDRs, or in a cluster --cluster-cidr of kube-controller-manager",
	}
}

func worse(a, b Level) Level {
	if a == Fail || b == Fail {
		return Fail
	}
	return cmp.Or(b, a)
}

// judgeSecondBridge looks for what an earlier setup has left.
func judgeSecondBridge(n *Network) Finding {
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
		return ok(id, "no bridge but %s has an address of the pods' network", n.Bridge)
	}
	slices.Sort(names)
	return warn(id, "beside "+n.Bridge+", these bridges have addresses of the pods' network "+listed(n.Pods)+", as an earlier network of pods leaves them: "+
		strings.Join(found, ", ")+"; packets to pods may go there",
		"when no container uses it any more: ip link delete "+strings.Join(slices.Compact(names), ", ip link delete ")+"; or give the pods another network (network.podCIDRs)")
}

func judgeDropping(n *Network) Finding {
	const id = "forward-drop"
	if len(n.Host.Dropping) == 0 {
		return ok(id, "no other table of nftables drops what pods send and get")
	}
	var names []string
	for _, c := range n.Host.Dropping {
		names = append(names, fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table))
	}
	return warn(id, fmt.Sprintf("what is forwarded is dropped by %s, where no rule names %s: pods may not reach the world, nor be reached", strings.Join(names, ", "), n.Bridge),
		fmt.Sprintf("let through what comes from and goes to %[1]s: with Docker, iptables -I DOCKER-USER -i %[1]s -j ACCEPT and the same with -o; with firewalld, firewall-cmd --permanent --zone=trusted --add-interface=%[1]s; else a rule in that chain", n.Bridge))
}

// networkRemedy is what helps while the runtime finds the pods' network not
// ready.
func (n *Network) networkRemedy() string {
	if n.Mode == config.NetworkCNI {
		return "put a network configuration into " + n.ConfigFolder + " and its plugins into " + filepath.Dir(n.Plugin.Path) + " or /usr/lib/cni"
	}
	return "start tinylet, which writes " + filepath.Join(n.ConfigFolder, ownConfig) + ", and see what it logs of the pods' network; containerd has to read that folder (conf_dir in /etc/containerd/config.toml, network.configFolder)"
}
