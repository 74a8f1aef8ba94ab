package cli

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// NetDocument is what net -o json prints.
type NetDocument struct {
	// Mode is bridge, routed where pods of other nodes are reached directly,
	// host where no pod gets a network, cni where the configuration is not
	// tinylet's, or "" where there is none, or tinylet's cannot be read, or
	// what the runtime takes is of the loopback alone.
	Mode string `json:"mode"`
	// ConfigFolder is the runtime's, and ConfigFile the one that it takes.
	ConfigFolder string `json:"configFolder"`
	ConfigFile   string `json:"configFile,omitempty"`
	// OnlyLoopback says that ConfigFile has the loopback alone, which is no
	// network, and that no other's network is meant.
	OnlyLoopback bool `json:"onlyLoopback,omitempty"`
	// Shadowed is tinylet's own, if the runtime takes another.
	Shadowed string `json:"shadowed,omitempty"`
	// Refuse is what a pod hears in the mode host.
	Refuse     string                `json:"refuse,omitempty"`
	Networks   []PodsNetworkDocument `json:"networks,omitempty"`
	Bridge     *BridgeDocument       `json:"bridge,omitempty"`
	MTU        int                   `json:"mtu"` // bytes; 0 is the uplink's
	Masquerade bool                  `json:"masquerade"`
	Direct     []netip.Prefix        `json:"direct,omitempty"` // reached without masquerade
	// RulesProblem is how the rules differ from what they should be.
	RulesProblem string `json:"rulesProblem,omitempty"`
	// SpoofingProblem is why pods can send with the addresses of others.
	SpoofingProblem string           `json:"spoofingProblem,omitempty"`
	Uplink          *UplinkDocument  `json:"uplink,omitempty"`
	Pods            []PodNetDocument `json:"pods"`
}

// PodsNetworkDocument is a network that pods have addresses of.
type PodsNetworkDocument struct {
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
	// Kept says that it gives no more addresses.
	Kept bool `json:"kept,omitempty"`
}

// BridgeDocument is the pods' bridge as the kernel has it.
type BridgeDocument struct {
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
	Up     bool   `json:"up"`
}

// UplinkDocument is the host's interface to the world.
type UplinkDocument struct {
	Name      string       `json:"name"`
	MTU       int          `json:"mtu"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// PodNetDocument is the network of one pod.
type PodNetDocument struct {
	// Pod is namespace/name, "" where nobody said it.
	Pod       string       `json:"pod,omitempty"`
	Container string       `json:"container"` // ID of the sandbox
	Addresses []netip.Addr `json:"addresses"`
	// Interface is that on the host.
	Interface        string            `json:"interface"`
	InterfaceMissing bool              `json:"interfaceMissing,omitempty"`
	Ports            []PodPortDocument `json:"ports,omitempty"`
	Since            *time.Time        `json:"since,omitempty"`
}

// PodPortDocument is a port of the host that leads to a pod.
type PodPortDocument struct {
	HostIP   netip.Addr `json:"hostIP,omitzero"` // none is all of the host's
	Host     uint16     `json:"host"`
	Protocol string     `json:"protocol"`
	Address  netip.Addr `json:"address"` // the pod's
	Target   uint16     `json:"target"`  // the pod's
	// Missing says that the kernel does not have it.
	Missing bool `json:"missing,omitempty"`
}

func networkDocuments(ranges []ipam.Range, kept bool) (all []PodsNetworkDocument) {
	for _, r := range ranges {
		// One that is not complete would not have been written.
		if whole, err := r.Complete(); err == nil {
			r = whole
		}
		all = append(all, PodsNetworkDocument{Subnet: r.Prefix, Gateway: r.Gateway, Kept: kept})
	}
	return all
}

// podNetDocument is an entry with what the kernel lacks of it.
func podNetDocument(e *podnet.Entry, hasInterface func(string) bool, hasPort func(nft.Port) bool) PodNetDocument {
	d := PodNetDocument{
		Pod: e.Pod, Container: e.ID.Container, Addresses: e.Addresses,
		Interface: e.Interface, InterfaceMissing: !hasInterface(e.Interface), Since: known(e.Since),
	}
	for _, p := range e.Ports {
		d.Ports = append(d.Ports, PodPortDocument{
			HostIP: p.HostIP, Host: p.Host, Protocol: p.Protocol.String(), Address: p.Pod, Target: p.Target, Missing: !hasPort(p),
		})
	}
	slices.SortFunc(d.Ports, comparePorts)
	return d
}

func comparePorts(a, b PodPortDocument) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Protocol, b.Protocol), a.HostIP.Compare(b.HostIP), a.Address.Compare(b.Address))
}

// comparePods has pods that nobody named behind the others.
func comparePods(a, b PodNetDocument) int {
	if (a.Pod == "") != (b.Pod == "") {
		return cmp.Compare(b.Pod, a.Pod)
	}
	return cmp.Or(cmp.Compare(a.Pod, b.Pod), slices.CompareFunc(a.Addresses, b.Addresses, netip.Addr.Compare), cmp.Compare(a.Container, b.Container))
}
