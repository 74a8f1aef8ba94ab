package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Protocol is one above IP that has ports, by its number there.
type Protocol uint8

// The protocols of host ports and services.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

// String is the name in capitals.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

func (p Protocol) valid() bool { return p == TCP || p == UDP || p == SCTP }

// Port is a port of this machine that leads to one of a pod.
type Port struct {
	// HostIP is the machine's address that the port is on. The zero one and
	// unspecified ones (0.0.0.0, ::) mean all of the family that Pod has.
	HostIP netip.Addr
	// Protocol is TCP, UDP or SCTP.
	Protocol Protocol
	// Host is the port on the machine.
	Host uint16
	// Pod and Target are where it leads. Pod has the family of HostIP.
	Pod    netip.Addr
	Target uint16
	// Owner is who has it, such as the pod sandbox's ID. The kernel keeps it
	// with the port, in the form that KeptOwner gives.
	Owner string
}

// String is such as 192.0.2.1:8080/TCP.
func (p Port) String() string {
	host := "*"
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
		if p.HostIP.Is6() {
			host = "[" + host + "]"
		}
	}
	return fmt.Sprintf("%s:%d/%s", host, p.Host, p.Protocol)
}

// PortTaken says that a port is another's.
type PortTaken struct {
	// Port is what was asked for.
	Port Port
	// Owner has it, or has it on one or all addresses where these collide.
	Owner string
}

// Error names the port and its owner.
func (e *PortTaken) Error() string {
	return fmt.Sprintf("host port %s is taken by %s", e.Port, e.Owner)
}

// checked is the port in the form that it is kept in.
func (p Port) checked() (Port, error) {
	p, err := p.keyed()
	switch {
	case err != nil:
		return p, err
	case !p.Pod.IsValid() || p.Pod.IsUnspecified():
		return p, fmt.Errorf("host port %s leads to no pod", p)
	case p.Target == 0:
		return p, fmt.Errorf("host port %s leads to no port", p)
	case p.HostIP.IsValid() && p.HostIP.Is4() != p.Pod.Is4():
		return p, fmt.Errorf("host port %s leads to a pod of another family, %s", p, p.Pod)
	}
	return p, nil
}

// keyed checks what a port is known by.
func (p Port) keyed() (Port, error) {
	p.Pod, p.HostIP = p.Pod.Unmap(), p.HostIP.Unmap()
	switch {
	case !p.Protocol.valid():
		return p, fmt.Errorf("host port %d: protocol %d is none of TCP, UDP and SCTP", p.Host, p.Protocol)
	case p.Host == 0:
		return p, errors.New("host port 0 is none")
	case p.HostIP.Zone() != "" || p.Pod.Zone() != "":
		return p, fmt.Errorf("host port %s: addresses of one interface are not supported", p)
	case p.Owner == "":
		return p, fmt.Errorf("host port %s has no owner", p)
	}
	if !p.Pod.IsValid() && p.HostIP.IsValid() {
		p.Pod = unspecified(p.HostIP) // for its family
	}
	if p.HostIP.IsUnspecified() {
		p.HostIP = netip.Addr{}
	}
	p.Owner = KeptOwner(p.Owner)
	return p, nil
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// compare sorts ports for people.
func (p Port) compare(q Port) int {
	return cmp.Or(cmp.Compare(p.Host, q.Host), cmp.Compare(p.Protocol, q.Protocol),
		p.HostIP.Compare(q.HostIP), p.Pod.Compare(q.Pod))
}
