package podnet

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Pod is what is asked for.
type Pod struct {
	ID
	// NetNS is the path of its network namespace.
	NetNS string
	// Namespace, Name and UID are for people, and UID, or else the names, is
	// what an address goes by that stays the same over reboots.
	Namespace, Name, UID string
	// Ports are those of the host that lead to it. Owner is filled in, and so
	// is Pod where it is not set: one for each address of HostIP's family.
	Ports []nft.Port
	// Ingress and Egress bound what goes in and what comes out; zero does not.
	Ingress, Egress link.Rate
	// Wanted are its addresses, if just these are asked for.
	Wanted []netip.Addr
	// MAC is its address, if just this one is asked for.
	MAC net.HardwareAddr
}

func (p *Pod) key() string {
	if p.UID != "" {
		return p.UID
	}
	if p.Name != "" {
		return p.Namespace + "/" + p.Name
	}
	return ""
}

func (p *Pod) label() string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// detail is what a lease remembers, beside the addresses, of what was made.
type detail struct {
	NetNS string     `json:"netns,omitempty"`
	Ports []nft.Port `json:"ports,omitempty"`
	// MAC is the pod's, if just this one was asked for.
	MAC net.HardwareAddr `json:"mac,omitempty"`
	// Leaving says that the ports are being taken away, so that nobody puts
	// them back.
	Leaving bool `json:"leaving,omitempty"`
}

func (d detail) encode() ([]byte, error) { return json.Marshal(d) }

// detailOf reads a lease's; one that cannot be read is empty, and what it
// would have told is found by its owner.
func detailOf(l ipam.Lease) (d detail, whole bool) {
	err := json.Unmarshal(l.Detail, &d)
	return d, err == nil
}

// portsOf are the ports as the table has them, for the addresses of a lease.
func (p *Pod) portsOf(addresses []netip.Addr) ([]nft.Port, error) {
	var all []nft.Port
	for _, port := range p.Ports {
		port.Owner = p.Owner()
		found := false
		for _, a := range addresses {
			if port.HostIP.IsValid() && port.HostIP.Is4() != a.Is4() {
				continue
			}
			found = true
			port.Pod = a
			all = append(all, port)
		}
		if !found {
			return nil, fmt.Errorf("port %v of the host: the pod has no address of that family", port)
		}
	}
	return all, nil
}

// Result is what a pod has.
type Result struct {
	Bridge, Host, Inside Interface
	// Addresses are the pod's, with the prefix of its network, and Gateways
	// are where its default routes lead, in the same order.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
}

// Interface is one of those that belong to a pod's network.
type Interface struct {
	Name string
	MAC  net.HardwareAddr
	MTU  int // bytes
}
