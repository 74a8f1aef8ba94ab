package podnet

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Pod is the request for a pod's network.
type Pod struct {
	cni.ID
	// NetNS is the path of its network namespace.
	NetNS string
	// Namespace, Name and UID are for people. UID, or else Namespace and Name, is the
	// key by which a pod tends to get the same address again after a reboot.
	Namespace, Name, UID string
	// Ports are the host ports. Owner is set by this package, and so is Pod: there is
	// one port for each address of HostIP's family.
	Ports []nft.Port
	// Ingress and Egress limit what the pod receives and sends; zero is no limit.
	Ingress, Egress link.Rate
	// Addresses are the requested addresses; nil are any.
	Addresses []netip.Addr
	// MAC is the requested MAC address; nil is any.
	MAC net.HardwareAddr
}

func (p *Pod) label() string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// detail is what a lease records besides the addresses.
type detail struct {
	NetNS string     `json:"netns,omitempty"`
	Ports []nft.Port `json:"ports,omitempty"`
	// MAC is the requested MAC address, if any.
	MAC net.HardwareAddr `json:"mac,omitempty"`
	// Leaving means that the ports are being removed and must not be restored.
	Leaving bool `json:"leaving,omitempty"`
}

func (d detail) encode() ([]byte, error) { return json.Marshal(d) }

// detailOf parses the detail of a lease. If that fails, it is empty and whole is
// false; what belongs to the lease is then found by its owner.
func detailOf(l ipam.Lease) (d detail, whole bool) {
	err := json.Unmarshal(l.Detail, &d)
	return d, err == nil
}

// portsOf returns the host ports as in the table, for the addresses of a lease.
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
			return nil, fmt.Errorf("host port %v: the pod has no address of that family", port)
		}
	}
	return all, nil
}

// Result describes the network that was set up.
type Result struct {
	Bridge, Host, Inside cni.Interface
	// Addresses are the pod's addresses, with the prefix length of their network.
	// Gateways are the gateways of its default routes, in the same order.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
}
