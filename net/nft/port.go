package nft

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Protocol is the IP number of a protocol that has ports.
type Protocol uint8

// The protocols of host ports and services.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

var protocols = map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP"}

// String returns the name in capitals.
func (p Protocol) String() string { return cmp.Or(protocols[p], strconv.Itoa(int(p))) }

func (p Protocol) valid() bool { return protocols[p] != "" }

// Port is a host port: it leads to a port of a pod.
type Port struct {
	// HostIP is the address of this machine that has the port. The zero address
	// and unspecified ones (0.0.0.0, ::) mean all addresses of Pod's family.
	HostIP netip.Addr
	// Protocol is TCP, UDP or SCTP.
	Protocol Protocol
	// Host is the port on this machine.
	Host uint16
	// Pod and Target are the address and the port of the pod. Pod has the family
	// of HostIP.
	Pod    netip.Addr
	Target uint16
	// Owner identifies the owner, such as the ID of a pod sandbox. The kernel
	// stores it with the port, in the form that KeptOwner returns.
	Owner string
}

// String returns the port in a form such as 192.0.2.1:8080/TCP.
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

// PortTaken means that another owner has a port.
type PortTaken struct {
	// Port is the rejected port.
	Port Port
	// Owner has this port, or one that collides with it.
	Owner string
}

// Error returns the port and its owner.
func (e *PortTaken) Error() string {
	return fmt.Sprintf("host port %s is taken by %s", e.Port, e.Owner)
}

// checked returns the port in the form that the kernel stores.
func (p Port) checked() (Port, error) {
	p, err := p.keyed()
	switch {
	case err != nil:
		return p, err
	case !p.Pod.IsValid() || p.Pod.IsUnspecified():
		return p, fmt.Errorf("host port %s has no pod address", p)
	case p.Target == 0:
		return p, fmt.Errorf("host port %s has no target port", p)
	case p.HostIP.IsValid() && p.HostIP.Is4() != p.Pod.Is4():
		return p, fmt.Errorf("host port %s and pod address %s have different families", p, p.Pod)
	}
	return p, nil
}

// keyed checks what identifies a port, and returns it in the form that the kernel
// stores.
func (p Port) keyed() (Port, error) {
	p.Pod, p.HostIP = p.Pod.Unmap(), p.HostIP.Unmap()
	switch {
	case !p.Protocol.valid():
		return p, fmt.Errorf("host port %d: unsupported protocol %d", p.Host, p.Protocol)
	case p.Host == 0:
		return p, errors.New("host port 0 is invalid")
	case p.HostIP.Zone() != "" || p.Pod.Zone() != "":
		return p, fmt.Errorf("host port %s: addresses with a zone are not supported", p)
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

// compare orders ports.
func (p Port) compare(q Port) int {
	return cmp.Or(cmp.Compare(p.Host, q.Host), cmp.Compare(p.Protocol, q.Protocol),
		p.HostIP.Compare(q.HostIP), p.Pod.Compare(q.Pod))
}

// portKey is what two ports that collide have in common.
type portKey struct {
	protocol Protocol
	host     uint16
	v4       bool
}

func (p Port) portKey() portKey { return portKey{p.Protocol, p.Host, p.Pod.Is4()} }

// portSet is ports none of which excludes another.
type portSet map[portKey][]Port

func (s portSet) add(p Port) { s[p.portKey()] = append(s[p.portKey()], p) }

// against returns the port of the set that excludes p: one on the same address, or one of
// another owner that collides.
func (s portSet) against(p Port) (q Port, taken bool) {
	for _, q := range s[p.portKey()] {
		if p.HostIP == q.HostIP || p.collides(q) {
			return q, true
		}
	}
	return Port{}, false
}

// collides reports whether two ports of different owners exclude each other because one
// is on all addresses and the other on one address.
func (p Port) collides(q Port) bool {
	return p.Owner != q.Owner && p.portKey() == q.portKey() && p.HostIP.IsValid() != q.HostIP.IsValid()
}

// ownerLen bounds an owner in bytes, which is a comment for the nft program.
const ownerLen = 120

// KeptOwner returns the form in which the kernel stores an owner, and in which
// owners are compared. An owner of at most 120 bytes of printable ASCII without
// quotes and backslashes stays as it is. Any other becomes its beginning with a
// hash of all of it.
func KeptOwner(owner string) string {
	kept := []byte(owner[:min(len(owner), ownerLen)])
	changed := len(owner) > ownerLen
	for i, c := range kept {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			kept[i], changed = '?', true
		}
	}
	if !changed {
		return owner
	}
	digest := sha256.Sum256([]byte(owner))
	sum := "~" + hex.EncodeToString(digest[:16])
	return string(kept[:min(len(kept), ownerLen-len(sum))]) + sum
}
