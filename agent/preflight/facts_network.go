package preflight

import "net/netip"

// Network is how the pods get their network.
type Network struct {
	// Mode is what is meant: one of config's, never "".
	Mode   string
	Bridge string
	// Services says that the node is to carry the addresses of Services.
	Services bool
	// Pods are the networks of the node's pods, as far as they are known:
	// those of a cluster the API server assigns.
	Pods []netip.Prefix

	ConfigFolder string
	// Ours says that tinylet's configuration is there. Others are the names of
	// those of somebody else, sorted; Err is why they could not be listed.
	// Loopbacks are those among them with the loopback alone, which are no
	// networks of pods.
	Ours              bool
	Others, Loopbacks []string
	Err               string

	// Plugin is this binary's link. Loopback is the plugin that the runtime calls
	// for the loopback interface; its Path is "" where the runtime does not call
	// one.
	Plugin, Loopback Plugin
	Host             HostNetwork
}

// Plugin is a program that the container runtime calls for a pod's network.
type Plugin struct {
	Path  string // with the runtime's directory that has it, or would get it
	State PluginState
	// Target is where a link leads.
	Target string
	// Writable says that the agent can make the link.
	Writable bool
}

// PluginState is what stands at a plugin's path.
type PluginState uint8

// States of a plugin.
const (
	PluginMissing PluginState = iota
	PluginBroken              // a link to what is not there
	PluginInert               // what cannot be run
	PluginThere
)

// HostNetwork is what this node's own network looks like.
type HostNetwork struct {
	// Known says that the kernel has told; Err is why it has not, "" where it
	// was not asked.
	Known bool
	Err   string
	// Used are the networks that the host's interfaces have addresses of, or
	// that routes of the main table lead to, without the default ones and
	// those of the pods' bridge.
	Used []UsedNetwork
	// Dropping are chains of others that drop what is forwarded and have no
	// rule for the pods' bridge; RulesKnown says that nftables has told, and
	// RulesErr why it has not.
	// BridgeFamily says whether nftables can have tables of the family bridge.
	BridgeFamily Known
	RulesKnown   bool
	RulesErr     string
	Dropping     []DroppingChain
}

// UsedNetwork is a network that is reached over an interface.
type UsedNetwork struct {
	Network   netip.Prefix
	Interface string
	Bridge    bool // the interface is one, and not the way to the world
	Address   bool // it has an address there; else a route leads there
}

// DroppingChain is a chain of nftables in the hook of forwarded packets.
type DroppingChain struct {
	Family, Table, Name string
}
