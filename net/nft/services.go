package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// services is all that the table has for services.
type services struct {
	// picks are the chains that lead to endpoints, by name.
	picks map[string]pick
	// ends are the chains and sets of single endpoints, with affinity.
	ends map[string]sticky
	// outer are the chains of external addresses, by name.
	outer map[string]outer
	// targets are the elements of the verdict maps.
	targets map[entry]target
	// flows are the ways that UDP and SCTP may take, for connection tracking.
	flows map[Port]bool
}

// entry is one element of a verdict map, by the map's name and the key.
type entry struct{ set, key string }

// target is where an element leads: into a chain, or nowhere.
type target struct {
	code  int32
	chain string
}

var (
	refuse = target{verdictGoto, chainReject}
	ignore = target{verdictDrop, ""}
)

// plan is what services make of the table. Of two that claim the same address
// and port, one whose cluster IP it is has it, or the first by name.
func plan(all []Service) (*services, error) {
	p := &services{map[string]pick{}, map[string]sticky{}, map[string]outer{}, map[entry]target{}, map[Port]bool{}}
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
			return nil, fmt.Errorf("service %.80q of %s is there twice", s.Name, s.Protocol)
		}
		seen[id{s.Name, s.Protocol}] = true
	}
	// Whoever may make a service chooses its external IPs, but no cluster IPs:
	// these go first.
	for _, add := range []func(s *Service, f family){p.addInside, p.addOutside} {
		for i := range sorted {
			add(&sorted[i], ipv4)
			add(&sorted[i], ipv6)
		}
	}
	return p, nil
}

// addInside plans the cluster IPs that a service has of an IP version.
func (p *services) addInside(s *Service, f family) {
	if ips := addresses(s.IPs, f); len(ips) > 0 {
		to, reached := p.inside(s, f)
		p.claim(s, f, ips, to, reached)
	}
}

// addOutside plans what else it has.
func (p *services) addOutside(s *Service, f family) {
	ips, external := addresses(s.IPs, f), addresses(s.External, f)
	onNode := s.NodePort != 0 && (len(ips) > 0 || len(endpoints(s.Endpoints, f)) > 0)
	if !onNode && len(external) == 0 {
		return
	}
	to, reached := p.outside(s, f)
	p.claim(s, f, external, to, reached)
	if onNode {
		e := entry{nodePortMap(f).name, string(appendPort(nil, s.Protocol, s.NodePort))}
		p.lead(e, to, s, Port{Protocol: s.Protocol, Host: s.NodePort}, reached)
	}
}

// addresses are those of a family, each once.
func addresses(all []netip.Addr, f family) []netip.Addr {
	var some []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); familyOf(a) == f && !slices.Contains(some, a) {
			some = append(some, a)
		}
	}
	return some
}

// inside is where the service's cluster IPs lead, and which endpoints that are.
func (p *services) inside(s *Service, f family) (target, []netip.AddrPort) {
	if s.InternalLocal {
		return p.local(s, f)
	}
	return p.all(s, f)
}

// outside is the same for what others come by.
func (p *services) outside(s *Service, f family) (target, []netip.AddrPort) {
	to, reached := p.all(s, f)
	if to == refuse {
		return to, reached
	}
	o := outer{all: to.chain}
	if s.ExternalLocal {
		o.apart, o.bridge = true, s.Bridge
		o.others, _ = p.local(s, f)
	}
	name := s.chainName("service-external", f)
	p.outer[name] = o
	return target{verdictGoto, name}, reached
}

func (p *services) all(s *Service, f family) (target, []netip.AddrPort) {
	reached := endpoints(s.Endpoints, f)
	if len(reached) == 0 {
		return refuse, nil
	}
	return p.pick(s, f, "service", reached), reached
}

func (p *services) local(s *Service, f family) (target, []netip.AddrPort) {
	reached := endpoints(s.LocalEndpoints, f)
	switch {
	case len(reached) > 0:
		return p.pick(s, f, "service-local", reached), reached
	case len(endpoints(s.Endpoints, f)) > 0:
		return ignore, nil // another node answers, and is asked again
	}
	return refuse, nil
}

// pick has a chain for some endpoints.
func (p *services) pick(s *Service, f family, kind string, reached []netip.AddrPort) target {
	name := s.chainName(kind, f)
	chain := pick{family: f, endpoints: reached}
	if s.Affinity > 0 {
		for _, e := range reached {
			end := stickyName(s.chainName("service-endpoint", f), e)
			p.ends[end] = sticky{f, e, s.Affinity}
			chain.sticky = append(chain.sticky, end)
		}
	}
	p.picks[name] = chain
	return target{verdictGoto, name}
}

// claim leads the service's port on addresses somewhere.
func (p *services) claim(s *Service, f family, ips []netip.Addr, to target, reached []netip.AddrPort) {
	for _, ip := range ips {
		e := entry{vipMap(f).name, string(appendPort(ip.AsSlice(), s.Protocol, s.Port))}
		p.lead(e, to, s, Port{HostIP: ip, Protocol: s.Protocol, Host: s.Port}, reached)
	}
}

// lead leads an element somewhere unless another service has it.
func (p *services) lead(e entry, to target, s *Service, port Port, reached []netip.AddrPort) {
	if _, taken := p.targets[e]; taken {
		return
	}
	p.targets[e] = to
	if s.Protocol == TCP {
		return
	}
	for _, r := range reached {
		port.Pod, port.Target = r.Addr(), r.Port()
		p.flows[port] = true
	}
}
