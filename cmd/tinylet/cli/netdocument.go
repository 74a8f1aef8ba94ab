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

// NetDocument is the output of net -o json.
type NetDocument struct {
	// Mode is bridge; routed if pods of other nodes are reached directly; host if no
	// pod gets a network; cni if the configuration is not tinylet's; or "" if there is
	// no configuration, tinylet's cannot be parsed, or the one that the runtime uses
	// has only the loopback plugin.
	Mode string `json:"mode"`
	// ConfigFolder is the runtime's configuration directory, and ConfigFile the path of
	// the configuration that the runtime uses.
	ConfigFolder string `json:"configFolder"`
	ConfigFile   string `json:"configFile,omitempty"`
	// OnlyLoopback means that ConfigFile has only the loopback plugin, which is no pod
	// network, and that the directory has no configuration of another network plugin.
	OnlyLoopback bool `json:"onlyLoopback,omitempty"`
	// Shadowed is the path of tinylet's configuration if the runtime uses another one.
	Shadowed string `json:"shadowed,omitempty"`
	// Refuse is the error of the plugin for pods in mode host.
	Refuse     string                `json:"refuse,omitempty"`
	Networks   []PodsNetworkDocument `json:"networks,omitempty"`
	Bridge     *BridgeDocument       `json:"bridge,omitempty"`
	MTU        int                   `json:"mtu"` // bytes; 0 is the MTU of the uplink
	Masquerade bool                  `json:"masquerade"`
	Direct     []netip.Prefix        `json:"direct,omitempty"` // reached without masquerade
	// RulesProblem describes how the nftables rules differ from the desired ones.
	RulesProblem string `json:"rulesProblem,omitempty"`
	// SpoofingProblem is why pods can spoof addresses.
	SpoofingProblem string           `json:"spoofingProblem,omitempty"`
	Uplink          *UplinkDocument  `json:"uplink,omitempty"`
	Pods            []PodNetDocument `json:"pods"`
}

// PodsNetworkDocument is an address range of the pod network.
type PodsNetworkDocument struct {
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
	// Kept means that existing pods keep their addresses of the range and new pods get
	// none.
	Kept bool `json:"kept,omitempty"`
}

// BridgeDocument is the state of the pods' bridge in the kernel.
type BridgeDocument struct {
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
	Up     bool   `json:"up"`
}

// UplinkDocument is the interface of the default route.
type UplinkDocument struct {
	Name      string       `json:"name"`
	MTU       int          `json:"mtu"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// PodNetDocument is the network of one pod.
type PodNetDocument struct {
	// Pod is namespace/name, "" if the runtime did not pass it.
	Pod       string       `json:"pod,omitempty"`
	Container string       `json:"container"` // ID of the sandbox
	Addresses []netip.Addr `json:"addresses"`
	// Interface is the host end of the veth pair.
	Interface        string            `json:"interface"`
	InterfaceMissing bool              `json:"interfaceMissing,omitempty"`
	Ports            []PodPortDocument `json:"ports,omitempty"`
	Since            *time.Time        `json:"since,omitempty"`
}

// PodPortDocument is a hostPort of a pod.
type PodPortDocument struct {
	HostIP   netip.Addr `json:"hostIP,omitzero"` // invalid is all addresses of the host
	Host     uint16     `json:"host"`
	Protocol string     `json:"protocol"`
	Address  netip.Addr `json:"address"` // of the pod
	Target   uint16     `json:"target"`  // port of the pod
	// Missing means that the kernel has no rule for it.
	Missing bool `json:"missing,omitempty"`
}

// networkDocuments returns the documents of ranges, completed with defaults.
func networkDocuments(ranges []ipam.Range, kept bool) (all []PodsNetworkDocument) {
	for _, r := range ranges {
		// The agent writes only ranges that can be completed.
		if whole, err := r.Complete(); err == nil {
			r = whole
		}
		all = append(all, PodsNetworkDocument{Subnet: r.Prefix, Gateway: r.Gateway, Kept: kept})
	}
	return all
}

// podNetDocument returns the document of an entry. It marks what the kernel does not
// have.
func podNetDocument(e *podnet.Entry, hasInterface func(string) bool, hasPort func(nft.Port) bool) PodNetDocument {
	d := PodNetDocument{
		Pod: e.Pod, Container: e.ID.ContainerID, Addresses: e.Addresses,
		Interface: e.Interface, InterfaceMissing: !hasInterface(e.Interface), Since: timePointer(e.Since),
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

// comparePods sorts pods without a name last.
func comparePods(a, b PodNetDocument) int {
	if (a.Pod == "") != (b.Pod == "") {
		return cmp.Compare(b.Pod, a.Pod)
	}
	return cmp.Or(cmp.Compare(a.Pod, b.Pod), slices.CompareFunc(a.Addresses, b.Addresses, netip.Addr.Compare), cmp.Compare(a.Container, b.Container))
}
