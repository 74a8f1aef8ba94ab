package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/expr"
)

// Service is one port of a Kubernetes service. Addresses may be of both IP
// versions: those of one lead to endpoints of the same.
type Service struct {
	// Name is part of the names of chains, such as shop/web:http. It is unique for a
	// protocol.
	Name string
	// Protocol is TCP, UDP or SCTP.
	Protocol Protocol
	// IPs are the cluster IPs.
	IPs []netip.Addr
	// External are external IPs and those of load balancers.
	External []netip.Addr
	// Port is the port on IPs and External.
	Port uint16
	// NodePort is the port on the addresses of this machine, 0 for none.
	NodePort uint16
	// Endpoints are all endpoints, LocalEndpoints those on this node.
	Endpoints      []netip.AddrPort
	LocalEndpoints []netip.AddrPort
	// With ExternalLocal, External and NodePort lead to local endpoints only, and the
	// addresses of clients are not masqueraded. Connections from this machine and from
	// Bridge, the bridge of its pods, still lead to all endpoints. With InternalLocal,
	// IPs lead to local endpoints only.
	ExternalLocal, InternalLocal bool
	Bridge                       string
	// Affinity is the time for which a client without new connections keeps its
	// endpoint, in whole seconds. With 0 each connection leads to any endpoint.
	Affinity time.Duration
}

// maxAffinity is the maximum of Kubernetes, a day.
const maxAffinity = 24 * time.Hour

// Check returns why SyncServices would reject the service.
func (s *Service) Check() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("service of port %d has no name", s.Port)
	case !s.Protocol.valid():
		return fmt.Errorf("service %.80q: unsupported protocol %d", s.Name, s.Protocol)
	case s.Port == 0:
		return fmt.Errorf("service %.80q has no port", s.Name)
	case s.Bridge != "" && !validInterface(s.Bridge):
		return fmt.Errorf("service %.80q: invalid bridge name %.40q", s.Name, s.Bridge)
	case s.Affinity < 0 || s.Affinity > maxAffinity:
		return fmt.Errorf("service %.80q: affinity %v is not between 0 and %v", s.Name, s.Affinity, maxAffinity)
	}
	for _, a := range slices.Concat(s.IPs, s.External) {
		if !usable(a) {
			return fmt.Errorf("service %.80q: invalid address %s", s.Name, a)
		}
	}
	for _, e := range slices.Concat(s.Endpoints, s.LocalEndpoints) {
		if !usable(e.Addr()) || e.Port() == 0 {
			return fmt.Errorf("service %.80q: invalid endpoint %s", s.Name, e)
		}
	}
	return nil
}

func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Unmap().IsUnspecified()
}

// endpoints returns the endpoints of a family, sorted, each once.
func endpoints(all []netip.AddrPort, f family) []netip.AddrPort {
	var some []netip.AddrPort
	for _, e := range all {
		if a := e.Addr().Unmap(); familyOf(a) == f {
			some = append(some, netip.AddrPortFrom(a, e.Port()))
		}
	}
	slices.SortFunc(some, netip.AddrPort.Compare)
	return slices.Compact(some)
}

// addresses returns the addresses of a family, each once.
func addresses(all []netip.Addr, f family) []netip.Addr {
	var some []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); familyOf(a) == f && !slices.Contains(some, a) {
			some = append(some, a)
		}
	}
	return some
}

// Apart has the addresses and ports that no service may have. Connections to them are not
// redirected.
type Apart struct {
	// Hosts are addresses of other machines, such as that of the API server.
	Hosts []netip.Addr
	// Ports are TCP ports on all addresses of this machine.
	Ports []uint16
}

// checked returns the same sorted, each once, without invalid addresses.
func (a Apart) checked() Apart {
	var hosts []netip.Addr
	for _, h := range a.Hosts {
		if usable(h) {
			hosts = append(hosts, h.Unmap())
		}
	}
	slices.SortFunc(hosts, netip.Addr.Compare)
	return Apart{Hosts: slices.Compact(hosts), Ports: slices.Compact(slices.Sorted(slices.Values(a.Ports)))}
}

// servicePrefix is the prefix of the names of all chains and sets of SyncServices.
const servicePrefix = "service"

// ofServices reports whether a name is that of a chain or set of SyncServices.
func ofServices(name string) bool { return strings.HasPrefix(name, servicePrefix) }

// nameLimit bounds the service's part of a chain's name in bytes.
const nameLimit = 100

// chainName returns the name of a chain of the service, in characters that the nft program
// reads as one word: a hash of the protocol and the service's name, and the beginning of
// that name.
func (s *Service) chainName(kind string, f family) string {
	name := []byte(s.Name[:min(len(s.Name), nameLimit)])
	for i, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '/':
		default:
			name[i] = '_'
		}
	}
	digest := sha256.Sum256(append([]byte{byte(s.Protocol)}, s.Name...))
	return fmt.Sprintf("%s%d-%s-%s", kind, f.version, hex.EncodeToString(digest[:8]), name)
}

// services is all that the table has for services.
type services struct {
	// picks are the chains that lead to endpoints, by name.
	picks map[string]pick
	// sticky are the chains and sets of single endpoints, with affinity.
	sticky map[string]sticky
	// external are the chains of external addresses, by name.
	external map[string]external
	// verdicts are the elements of the verdict maps.
	verdicts map[entry]expr.Verdict
	// flows are the paths of UDP and SCTP, for connection tracking.
	flows map[Port]bool
}

// entry is one element of a verdict map, by the map's name and the key.
type entry struct{ set, key string }

// The verdicts for addresses without endpoints.
var (
	refuse = goTo(chainReject)
	ignore = expr.Verdict{Kind: expr.VerdictDrop}
)

// plan returns the desired contents of the table for services. If two services claim the
// same address and port, the one whose cluster IP it is gets it, or else the first by
// name.
func plan(all []Service) (*services, error) {
	p := &services{map[string]pick{}, map[string]sticky{}, map[string]external{}, map[entry]expr.Verdict{}, map[Port]bool{}}
	type id struct {
		name     string
		protocol Protocol
	}
	seen := map[id]bool{}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	for i := range sorted {
		s := &sorted[i]
		if err := s.Check(); err != nil {
			return nil, err
		}
		if seen[id{s.Name, s.Protocol}] {
			return nil, fmt.Errorf("duplicate service %.80q of %s", s.Name, s.Protocol)
		}
		seen[id{s.Name, s.Protocol}] = true
	}
	// Users who may create a service choose its external IPs, but not its cluster IPs:
	// cluster IPs take precedence.
	for _, add := range []func(s *Service, f family){p.addInternal, p.addExternal} {
		for i := range sorted {
			add(&sorted[i], ipv4)
			add(&sorted[i], ipv6)
		}
	}
	return p, nil
}

// addInternal plans the cluster IPs of a service of one IP version.
func (p *services) addInternal(s *Service, f family) {
	ips := addresses(s.IPs, f)
	if len(ips) == 0 {
		return
	}
	reach := p.all
	if s.InternalLocal {
		reach = p.local
	}
	to, reached := reach(s, f)
	p.claimAddresses(s, f, ips, to, reached)
}

// addExternal plans the external IPs and the node port of a service of one IP
// version.
func (p *services) addExternal(s *Service, f family) {
	ips, others := addresses(s.IPs, f), addresses(s.External, f)
	onNode := s.NodePort != 0 && (len(ips) > 0 || len(endpoints(s.Endpoints, f)) > 0)
	if !onNode && len(others) == 0 {
		return
	}
	to, reached := p.outside(s, f)
	p.claimAddresses(s, f, others, to, reached)
	if onNode {
		e := entry{nodePortMap(f).Name, string(appendPort(nil, s.Protocol, s.NodePort))}
		p.claim(e, to, s, Port{Protocol: s.Protocol, Host: s.NodePort}, reached)
	}
}

// outside returns the verdict for external addresses, and the endpoints that it
// leads to.
func (p *services) outside(s *Service, f family) (expr.Verdict, []netip.AddrPort) {
	to, reached := p.all(s, f)
	if to == refuse {
		return to, reached
	}
	x := external{all: to.Chain}
	if s.ExternalLocal {
		x.local, x.bridge = true, s.Bridge
		x.others, _ = p.local(s, f)
	}
	name := s.chainName("service-external", f)
	p.external[name] = x
	return goTo(name), reached
}

// all returns the verdict that leads to all endpoints, and these.
func (p *services) all(s *Service, f family) (expr.Verdict, []netip.AddrPort) {
	reached := endpoints(s.Endpoints, f)
	if len(reached) == 0 {
		return refuse, nil
	}
	return p.pick(s, f, "service", reached), reached
}

// local returns the verdict that leads to the local endpoints, and these.
func (p *services) local(s *Service, f family) (expr.Verdict, []netip.AddrPort) {
	reached := endpoints(s.LocalEndpoints, f)
	switch {
	case len(reached) > 0:
		return p.pick(s, f, "service-local", reached), reached
	case len(endpoints(s.Endpoints, f)) > 0:
		return ignore, nil // another node answers when the client tries again
	}
	return refuse, nil
}

// pick plans the chain that leads to some endpoints.
func (p *services) pick(s *Service, f family, kind string, reached []netip.AddrPort) expr.Verdict {
	name := s.chainName(kind, f)
	chain := pick{family: f, endpoints: reached}
	if s.Affinity > 0 {
		for _, e := range reached {
			own := stickyName(s.chainName("service-endpoint", f), e)
			p.sticky[own] = sticky{f, e, s.Affinity}
			chain.sticky = append(chain.sticky, own)
		}
	}
	p.picks[name] = chain
	return goTo(name)
}

// claimAddresses plans the service's port on addresses.
func (p *services) claimAddresses(s *Service, f family, ips []netip.Addr, to expr.Verdict, reached []netip.AddrPort) {
	for _, ip := range ips {
		e := entry{vipMap(f).Name, string(appendPort(ip.AsSlice(), s.Protocol, s.Port))}
		p.claim(e, to, s, Port{HostIP: ip, Protocol: s.Protocol, Host: s.Port}, reached)
	}
}

// claim plans an element unless another service has it.
func (p *services) claim(e entry, to expr.Verdict, s *Service, port Port, reached []netip.AddrPort) {
	if _, taken := p.verdicts[e]; taken {
		return
	}
	p.verdicts[e] = to
	if s.Protocol == TCP {
		return
	}
	for _, r := range reached {
		port.Pod, port.Target = r.Addr(), r.Port()
		p.flows[port] = true
	}
}
