package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of all services, which precede the chains of each.
const (
	chainServices        = "services"
	chainReject          = "service-reject"
	chainServicesPre     = "services-prerouting"
	chainServicesOutput  = "services-output"
	chainServicesPosting = "services-postrouting"
)

// masqueradeMark is the bit of a packet's mark that marks connections to external
// addresses until the packet leaves this machine: the bit that kube-proxy uses.
const masqueradeMark = 1 << 14

// vipMap returns the map from a service address and port to a verdict.
func vipMap(f family) nftables.Set {
	return nftables.Set{
		Name: "services" + strconv.Itoa(f.version), IsMap: true, DataType: nftables.TypeVerdict,
		KeyType: nftables.MustConcatSetType(f.addressType(), nftables.TypeInetProto, nftables.TypeInetService),
		Comment: "addresses of services",
	}
}

// nodePortMap returns the map from a port of this machine to a verdict.
func nodePortMap(f family) nftables.Set {
	return nftables.Set{
		Name: "service-nodeports" + strconv.Itoa(f.version), IsMap: true, DataType: nftables.TypeVerdict,
		KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		Comment: "services' ports on this machine's addresses",
	}
}

// serviceSets returns the verdict maps.
func serviceSets() []nftables.Set {
	return []nftables.Set{vipMap(ipv4), nodePortMap(ipv4), vipMap(ipv6), nodePortMap(ipv6)}
}

// serviceChains returns the chains of all services. They follow those of the host
// ports, and precede those that masquerade pods.
func serviceChains(apart Apart) []chain {
	jump := when("").jump(chainServices)
	return []chain{
		jumped(chainReject,
			when("no endpoints").l4proto(unix.IPPROTO_TCP).rejectTCP(),
			// Before routing since Linux 5.9.
			when("no endpoints").reject()),
		jumped(chainServices, append(apart.rules(), serviceVerdicts()...)...),
		hooked(chainServicesPre, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityRef(-99), jump),
		hooked(chainServicesOutput, nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityRef(-99), jump),
		hooked(chainServicesPosting, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(99),
			when("from others by a port of this machine").marked().masquerade()),
	}
}

// rules return before services are looked up.
func (a Apart) rules() []*rule {
	var rules []*rule
	for _, h := range a.Hosts {
		rules = append(rules, when("of no service").daddr(netip.PrefixFrom(h, h.BitLen())).returns())
	}
	for _, p := range a.Ports {
		own := when("the node's own port").l4proto(unix.IPPROTO_TCP).transport(2, 2, 0).equal(binary.BigEndian.AppendUint16(nil, p))
		rules = append(rules, own.daddrLocal().returns())
	}
	return rules
}

// serviceVerdicts look up addresses of services, then ports of this machine.
func serviceVerdicts() []*rule {
	var rules []*rule
	for _, f := range []family{ipv4, ipv6} {
		vip := when("").nfproto(f).network(f.dst, f.length, 0)
		rules = append(rules, vip.protoPort(f.words).vmap(vipMap(f).Name))
	}
	for _, f := range []family{ipv4, ipv6} {
		own := loopback
		if f == ipv6 {
			own = loopback6
		}
		rules = append(rules, when("").nfproto(f).notDaddr(own).daddrLocal().protoPort(0).vmap(nodePortMap(f).Name))
	}
	return rules
}

// mark sets masqueradeMark in the packet's mark.
func (r *rule) mark() *rule {
	return r.meta(expr.MetaKeyMARK, 0).bitwise(hostOrder(^uint32(masqueradeMark)), hostOrder(masqueradeMark)).setMark()
}

// marked matches packets with masqueradeMark, and removes it: a packet that enters a
// tunnel would keep it.
func (r *rule) marked() *rule {
	r.meta(expr.MetaKeyMARK, 0).mask(hostOrder(masqueradeMark)).notEqual(hostOrder(0))
	return r.meta(expr.MetaKeyMARK, 0).mask(hostOrder(^uint32(masqueradeMark))).setMark()
}

// external is a chain of external addresses and ports of this machine. If the endpoint
// may be on another node, connections are masqueraded, so that replies return to this
// machine.
type external struct {
	all string // the chain that leads to all endpoints
	// local makes connections use the verdict others, except those from this machine and
	// those of its pods, which are received by the bridge.
	local  bool
	bridge string
	others expr.Verdict
}

// write adds the rules of the chain.
func (x external) write(b *batch, name string) {
	if !x.local {
		b.newRule(name, when("").mark().goTo(x.all))
		return
	}
	if x.bridge != "" {
		b.newRule(name, when("pods of this node").iifname(x.bridge).goTo(x.all))
	}
	b.newRule(name, when("this machine").saddrLocal().mark().goTo(x.all))
	b.newRule(name, when("").verdict(x.others))
}

// sticky is the chain of one endpoint with affinity, and the set of the same name
// with its clients.
type sticky struct {
	family
	endpoint netip.AddrPort
	affinity time.Duration
}

// clientsSize bounds the clients that a set remembers. Further clients get any
// endpoint.
const clientsSize = 4096

func (s sticky) clients(name string) nftables.Set {
	return nftables.Set{
		Name: name, HasTimeout: true, Dynamic: true, Size: clientsSize, KeyType: s.addressType(),
		Comment: "clients of one endpoint",
	}
}

// stickyName returns the name of the chain of an endpoint.
func stickyName(chain string, e netip.AddrPort) string {
	return chain + "-" + strings.ReplaceAll(e.Addr().String(), ":", "_") + "-" + strconv.Itoa(int(e.Port()))
}

// write adds the rules of the chain.
func (s sticky) write(b *batch, name string) {
	// A rule of its own: a client that the set has no room for is redirected too.
	b.newRule(name, when("").clientAddress(s.family).add(&expr.Dynset{
		SetName: name, Operation: unix.NFT_DYNSET_OP_UPDATE, SrcRegKey: register(0), Timeout: s.affinity,
	}))
	b.newRule(name, when("").endpoint(s.endpoint).dnat(s.family))
}

// clientAddress loads the source address.
func (r *rule) clientAddress(f family) *rule { return r.nfproto(f).network(f.source, f.length, 0) }

// endpoint loads an endpoint.
func (r *rule) endpoint(e netip.AddrPort) *rule {
	value, f := endpointValue(e), familyOf(e.Addr())
	return r.immediate(0, value[:f.length]).immediate(f.words, value[f.length:f.length+2])
}

// pick is a chain that leads connections to one of its endpoints.
type pick struct {
	family
	endpoints []netip.AddrPort
	// sticky are the chains of the endpoints in the same order, with affinity.
	sticky []string
}

func (p pick) same(q pick) bool {
	return slices.Equal(p.endpoints, q.endpoints) && slices.Equal(p.sticky, q.sticky)
}

// write adds the rules of the chain.
func (p pick) write(b *batch, name string) {
	for _, chain := range p.sticky {
		b.newRule(name, when("").clientAddress(p.family).in(chain).goTo(chain))
	}
	switch {
	case len(p.endpoints) == 1 && p.sticky != nil:
		b.newRule(name, when("").goTo(p.sticky[0]))
	case len(p.endpoints) == 1:
		b.newRule(name, when("").endpoint(p.endpoints[0]).dnat(p.family))
	case p.sticky != nil:
		b.newRule(name, when("").random(len(p.endpoints)).lookup(anonymousMap, p.newMap(b), unix.NFT_REG_VERDICT))
	default:
		b.newRule(name, when("").random(len(p.endpoints)).lookup(anonymousMap, p.newMap(b), register(0)).dnat(p.family))
	}
}

// random loads a number below a bound.
func (r *rule) random(below int) *rule {
	return r.add(&expr.Numgen{Register: register(0), Modulus: uint32(below), Type: unix.NFT_NG_RANDOM})
}

// anonymousMap makes the kernel name a map, and delete it with its rule.
const anonymousMap = "__map%d"

// newMap adds the map of one rule from numbers to endpoints, or to their chains,
// and returns its ID.
func (p pick) newMap(b *batch) (id uint32) {
	s := nftables.Set{
		Name: anonymousMap, Anonymous: true, Constant: true, IsMap: true, Size: uint32(len(p.endpoints)),
		KeyType: nftables.TypeInteger, KeyByteOrder: binaryutil.NativeEndian,
		DataType: nftables.MustConcatSetType(p.addressType(), nftables.TypeInetService),
	}
	if p.sticky != nil {
		s.DataType = nftables.TypeVerdict
	}
	elements := make([]nftables.SetElement, 0, len(p.endpoints))
	for i, e := range p.endpoints {
		element := nftables.SetElement{Key: hostOrder(uint32(i))}
		if p.sticky != nil {
			to := goTo(p.sticky[i])
			element.VerdictData = &to
		} else {
			element.Val = endpointValue(e)
		}
		elements = append(elements, element)
	}
	id = b.newSet(s)
	b.putElements(anonymousMap, id, elements)
	return id
}
