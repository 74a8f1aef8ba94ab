package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Types of keys and values as the nft program counts them, for its listing
// alone; a concatenation has six bits for each.
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeProto   = 12
	typeService = 13
	typeBits    = 6
)

// setMap marks a set whose elements have values (NFT_SET_MAP).
const setMap = unix.NFT_SET_MAP

// portMap is one of the maps from host ports to pods.
type portMap struct {
	name string
	family
	at bool // the key has a host address, too
}

// portMaps are all: those with a host address first, as they are tried first.
var portMaps = [...]portMap{
	{name: "ports4at", family: ipv4, at: true},
	{name: "ports6at", family: ipv6, at: true},
	{name: "ports4", family: ipv4},
	{name: "ports6", family: ipv6},
}

// set is how a set or map is made.
type set struct {
	name             string
	flags            uint32
	keyType, keyLen  uint32
	dataType, valLen uint32
	size             uint32 // in elements; 0 grows
	comment          string
}

// What the maps hold. A bound has the kernel use a hash table of one size (2048
// and 512 slots here, 4 or 8 bytes each), which it lists as it is; one that
// grows may be listed in part while it does, and elements would be lost when the
// table is made anew.
const (
	portsSize   = 1536
	portsAtSize = 384
)

func (f family) nftType() uint32 {
	if f == ipv4 {
		return typeIPv4
	}
	return typeIPv6
}

func (m portMap) set() set {
	s := set{
		name:     m.name,
		flags:    setMap,
		keyType:  typeProto<<typeBits | typeService,
		keyLen:   8,
		dataType: m.nftType()<<typeBits | typeService,
		valLen:   uint32(m.length) + 4,
		size:     portsSize,
		comment:  "host ports on all addresses",
	}
	if m.at {
		s.keyType |= m.nftType() << (2 * typeBits)
		s.keyLen += uint32(m.length)
		s.size = portsAtSize
		s.comment = "host ports on one address"
	}
	return s
}

// mapOf is the map that a port belongs into.
func mapOf(p Port) portMap { return mapFor(familyOf(p.Pod), p.HostIP.IsValid()) }

func mapFor(f family, at bool) portMap {
	for _, m := range portMaps {
		if m.family == f && m.at == at {
			return m
		}
	}
	return portMap{}
}

// key is a port's key: each part fills whole registers.
func (m portMap) key(p Port) []byte {
	var key []byte
	if m.at {
		key = p.HostIP.AsSlice()
	}
	return appendPort(key, p.Protocol, p.Host)
}

func appendPort(key []byte, protocol Protocol, port uint16) []byte {
	return append(key, byte(protocol), 0, 0, 0, byte(port>>8), byte(port), 0, 0)
}

// value is where a port leads.
func (m portMap) value(p Port) []byte {
	return endpointValue(netip.AddrPortFrom(p.Pod, p.Target))
}

// port reads an element of the map; ok is false for what is none of ours.
func (m portMap) port(element []byte) (p Port, ok bool) {
	key := netlink.Attribute(netlink.Attribute(element, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
	value := netlink.Attribute(netlink.Attribute(element, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VALUE)
	if m.at {
		if len(key) < m.length {
			return p, false
		}
		p.HostIP, _ = netip.AddrFromSlice(key[:m.length])
		key = key[m.length:]
	}
	if len(key) != 8 || len(value) != m.length+4 {
		return p, false
	}
	p.Protocol = Protocol(key[0])
	p.Host = uint16(key[4])<<8 | uint16(key[5])
	p.Pod, _ = netip.AddrFromSlice(value[:m.length])
	p.Target = uint16(value[m.length])<<8 | uint16(value[m.length+1])
	p.Owner = comment(netlink.Attribute(element, unix.NFTA_SET_ELEM_USERDATA))
	return p, true
}

// chosen is the rule that leads host ports to pods by this map.
func (m portMap) chosen() *rule {
	r, word := when("").ip(m.family), 0
	if m.at {
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, m.dst, m.length, 0)
		word = m.words()
	}
	return r.portKey(word).lookup(m.name).redirect(m.family)
}
