package preflight

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container"
	agentnetwork "github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// network collects the facts of the pod network.
func (t tree) network(o *Options, info container.Info) Network {
	n := Network{Bridge: o.Network.Bridge, Services: o.Network.Services, Pods: o.PodNetworks}
	var plugins []string
	n.ConfigFolder, plugins = info.NetworkDirectories(&o.Network)
	dir := t.path(n.ConfigFolder)
	own, ours, _ := agentnetwork.OwnConfig(dir) // the agent reports an error
	n.Ours = ours
	if n.Pods == nil && ours { // the agent also uses the last ones
		for _, r := range own.Ranges {
			n.Pods = append(n.Pods, r.Prefix)
		}
	}
	names, err := agentnetwork.ConfigNames(dir)
	if err != nil {
		n.Err = err.Error()
	}
	var networks []string
	for _, name := range names {
		if ours && name == agentnetwork.FileName {
			continue
		}
		n.Others = append(n.Others, name)
		if agentnetwork.OnlyLoopback(filepath.Join(dir, name)) {
			n.Loopbacks = append(n.Loopbacks, name)
		} else {
			networks = append(networks, name)
		}
	}
	n.Mode = agentnetwork.SelectMode(o.Network.Mode, networks)
	n.Plugin = t.plugin(plugins, cni.Type)
	if info.CallsLoopback {
		n.Loopback = t.plugin(plugins, cni.LoopbackType)
	}
	return n
}

// plugin finds a plugin in the runtime's directories: the first that exists, or
// else the path at which the agent would install it.
func (t tree) plugin(folders []string, name string) Plugin {
	var all []Plugin
	for _, folder := range folders {
		all = append(all, t.pluginIn(folder, name))
	}
	for _, fits := range []func(Plugin) bool{
		func(p Plugin) bool { return p.State == PluginInstalled },
		func(p Plugin) bool { return p.State != PluginMissing },
		func(p Plugin) bool { return p.Writable },
		func(Plugin) bool { return true },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i]
		}
	}
	return Plugin{}
}

func (t tree) pluginIn(folder, name string) Plugin {
	p := Plugin{Path: filepath.Join(folder, name)}
	real := t.path(p.Path)
	info, err := os.Lstat(real)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		p.Target, _ = os.Readlink(real) // it is a symbolic link
		if filepath.IsAbs(p.Target) {
			real = t.path(p.Target)
		}
		info, err = os.Stat(real)
	}
	switch {
	case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0:
		p.State = PluginInstalled
	case err == nil:
		p.State = PluginNotExecutable
	case p.Target != "":
		p.State = PluginDangling
	}
	place := Directory{Path: folder}
	t.measure(&place)
	p.Writable = place.Writable
	return p
}

// hostNetwork reads the network state of the calling thread's network namespace.
func hostNetwork(bridge string) HostNetwork {
	var n HostNetwork
	var err error
	if n.Used, err = usedNetworks(bridge); err != nil {
		n.Err = err.Error()
	}
	n.Known = err == nil
	if n.Dropping, err = droppingChains(bridge); err != nil {
		n.RulesErr = err.Error()
	}
	n.RulesKnown = err == nil
	n.BridgeFamily = bridgeFamily()
	return n
}

// bridgeFamily reports whether nftables can filter on the pods' bridge what pods
// send.
func bridgeFamily() Tristate {
	senders, err := nft.OpenSenders()
	if err == nil {
		defer senders.Close()
		err = senders.Supported()
	}
	switch {
	case err == nil:
		return Yes
	case errors.Is(err, nft.ErrNoBridgeFamily):
		return No
	}
	return Unknown
}

// usedNetworks returns the networks of addresses, and after them those of routes
// that have no address in the same network.
func usedNetworks(bridge string) ([]UsedNetwork, error) {
	h, err := link.Open()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.Links()
	if err != nil {
		return nil, err
	}
	links := map[int]link.Link{}
	for _, l := range all {
		links[l.Index] = l
	}
	addresses, err := h.Addresses(0)
	if err != nil {
		return nil, err
	}
	routes, err := h.Routes(link.RouteFilter{})
	if err != nil {
		return nil, err
	}
	uplinks := map[int]bool{}
	for _, r := range routes {
		uplinks[r.Link] = uplinks[r.Link] || r.Default()
	}
	var used []UsedNetwork
	add := func(network netip.Prefix, index int, address bool) {
		l := links[index]
		u := UsedNetwork{Network: network.Masked(), Interface: l.Name, Bridge: l.Kind == "bridge" && !uplinks[index], Address: address}
		same := func(v UsedNetwork) bool { return v.Network == u.Network && v.Interface == u.Interface }
		if l.Name != "" && l.Name != bridge && !slices.ContainsFunc(used, same) {
			used = append(used, u)
		}
	}
	for _, a := range addresses {
		if a.Global() {
			add(a.Prefix, a.Index, true)
		}
	}
	for _, r := range routes {
		if !r.Default() && r.Type == unix.RTN_UNICAST && !r.Dst.Addr().IsLinkLocalUnicast() {
			add(r.Dst, r.Link, false)
		}
	}
	return used, nil
}
