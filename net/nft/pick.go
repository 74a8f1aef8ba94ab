package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pick is a chain that leads connections to one of its endpoints.
type pick struct {
	family
	endpoints []netip.AddrPort
	// sticky are the endpoints' own chains, in their order, with affinity.
	sticky []string
}

func (p pick) same(q pick) bool {
	return slices.Equal(p.endpoints, q.endpoints) && slices.Equal(p.sticky, q.sticky)
}

// sticky is the chain of one endpoint with affinity, and the set, with the same
// name, of the clients that it has.
type sticky struct {
	family
	endpoint netip.AddrPort
	affinity time.Duration
}

// clientsSize bounds the clients that are remembered for an endpoint. Others are
// led anywhere.
const clientsSize = 4096

func (s sticky) clients(name string) set {
	return set{
		name:    name,
		flags:   unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL,
		keyType: s.nftType(),
		keyLen:  uint32(s.length),
		size:    clientsSize,
		comment: "clients of one endpoint",
	}
}

// stickyName is the name of such a chain, of a service whose chain is known.
func stickyName(chain string, e netip.AddrPort) string {
	return chain + "-" + strings.ReplaceAll(e.Addr().String(), ":", "_") + "-" + strconv.Itoa(int(e.Port()))
}

// write puts the chain's rules into the transaction.
func (s sticky) write(t *Table, name string) {
	// One that has no place in the set any more is led on all the same.
	remember := when("").clientAddress(s.family)
	remember.begin("dynset")
	remember.text(unix.NFTA_DYNSET_SET_NAME, name)
	remember.number(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
	remember.number(unix.NFTA_DYNSET_SREG_KEY, register(0))
	remember.attribute(unix.NFTA_DYNSET_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(s.affinity.Milliseconds())))
	t.newRule(name, remember.end())
	t.newRule(name, when("").endpoint(s.endpoint).redirect(s.family))
}

// write puts the chain's rules into the transaction.
func (p pick) write(t *Table, name string) {
	for _, chain := range p.sticky {
		t.newRule(name, when("").clientAddress(p.family).in(chain).on(chain))
	}
	switch {
	case len(p.endpoints) == 1 && p.sticky != nil:
		t.newRule(name, when("").on(p.sticky[0]))
	case len(p.endpoints) == 1:
		t.newRule(name, when("").endpoint(p.endpoints[0]).redirect(p.family))
	case p.sticky != nil:
		any := when("").random(len(p.endpoints))
		t.newRule(name, any.anonymous(t.newNumbered(p), unix.NFT_REG_VERDICT))
	default:
		any := when("").random(len(p.endpoints))
		t.newRule(name, any.anonymous(t.newNumbered(p), register(0)).redirect(p.family))
	}
}

// endpoint loads an endpoint.
func (r *rule) endpoint(e netip.AddrPort) *rule {
	value, f := endpointValue(e), familyOf(e.Addr())
	return r.immediate(0, value[:f.length]).immediate(f.words(), value[f.length:f.length+2])
}

// endpointValue is an endpoint as maps have it: each part fills whole registers.
func endpointValue(e netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()), 0, 0)
}

// immediate loads a value.
func (r *rule) immediate(word int, value []byte) *rule {
	r.begin("immediate")
	r.number(unix.NFTA_IMMEDIATE_DREG, register(word))
	r.value(unix.NFTA_IMMEDIATE_DATA, value)
	return r.end()
}

// clientAddress loads the sender's address.
func (r *rule) clientAddress(f family) *rule {
	return r.ip(f).payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.source, f.length, 0)
}

// in goes on with the rule only if a set has the key that begins at the first
// register.
func (r *rule) in(name string) *rule {
	r.begin("lookup")
	r.text(unix.NFTA_LOOKUP_SET, name)
	r.number(unix.NFTA_LOOKUP_SREG, register(0))
	return r.end()
}

// random loads a number below a bound.
func (r *rule) random(below int) *rule {
	r.begin("numgen")
	r.number(unix.NFTA_NG_DREG, register(0))
	r.number(unix.NFTA_NG_MODULUS, uint32(below))
	r.number(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	r.number(unix.NFTA_NG_OFFSET, 0)
	return r.end()
}
