package preflight

import "net/netip"

// Network are the facts of the pod network.
type Network struct {
	// Mode is the selected mode, one of package config's, never "".
	Mode   string
	Bridge string
	// Services is true if the node implements Services in place of kube-proxy.
	Services bool
	// Pods are the networks of the node's pods, as far as they are known. In a
	// cluster the API server assigns them.
	Pods []netip.Prefix

	ConfigFolder string
	// Ours is true if tinylet's configuration exists. Others are the names of other
	// configurations, sorted. Loopbacks are those of Others with only the loopback
	// plugin, which are no pod networks. Err is the error of listing the
	// configurations.
	Ours              bool
	Others, Loopbacks []string
	Err               string

	// Plugin is the link to this binary. Loopback is the plugin that the runtime
	// calls for the loopback interface; its Path is "" if the runtime does not call
	// one.
	Plugin, Loopback Plugin
	Host             HostNetwork
}

// Plugin is a CNI plugin of the container runtime.
type Plugin struct {
	Path  string // in the runtime's directory that has it, or would get it
	State PluginState
	// Target is the target of a symbolic link.
	Target string
	// Writable is true if the agent can create the link.
	Writable bool
}

type PluginState uint8

const (
	PluginMissing       PluginState = iota
	PluginDangling                  // a dangling link
	PluginNotExecutable             // not an executable file
	PluginInstalled
)

// HostNetwork is the state of the node's own network.
type HostNetwork struct {
	// Known is true if the kernel's links, addresses and routes were read. Err is
	// why they could not be read, "" if they were not requested.
	Known bool
	Err   string
	// Used are the networks of the addresses of the host's interfaces and of the
	// routes of the main table, without default routes and without the pods'
	// bridge.
	Used []UsedNetwork
	// Dropping are chains of others that drop forwarded packets and have no rule
	// for the pods' bridge. RulesKnown is true if the nftables rules were read, and
	// RulesErr is why they could not be read. BridgeFamily reports whether nftables
	// has the bridge family.
	BridgeFamily Tristate
	RulesKnown   bool
	RulesErr     string
	Dropping     []DroppingChain
}

// UsedNetwork is a network of the host.
type UsedNetwork struct {
	Network   netip.Prefix
	Interface string
	Bridge    bool // the interface is a bridge and not an uplink
	Address   bool // the interface has an address in the network; else there is a route
}

// DroppingChain is an nftables chain in the forward hook that drops packets.
type DroppingChain struct {
	Family, Table, Name string
}
