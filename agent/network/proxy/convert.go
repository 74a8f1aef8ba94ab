package proxy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/nft"
)

func compare(a, b listwatch.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// convert makes what the table needs of all Services and their slices, in
// order. What services may not have is left out, and told.
func convert(all map[listwatch.Key]service, ends map[listwatch.Key]slice, bridge string, apart apart) (out []nft.Service, claims []claim) {
	of := make(map[listwatch.Key][]slice, len(all))
	for _, key := range slices.SortedFunc(maps.Keys(ends), compare) {
		s := ends[key]
		key.Name = s.service
		of[key] = append(of[key], s)
	}
	out = make([]nft.Service, 0, len(all))
	type id struct {
		name     string
		protocol nft.Protocol
	}
	// The names of Services have no colon, but that is the API server's to say.
	seen := make(map[id]bool, len(all))
	for _, key := range slices.SortedFunc(maps.Keys(all), compare) {
		s := all[key]
		for _, p := range s.ports {
			name := key.Namespace + "/" + key.Name
			if p.name != "" {
				name += ":" + p.name
			}
			if this := (id{name, p.protocol}); !seen[this] {
				seen[this] = true
				r := s.rule(name, p, of[key])
				r.Bridge = bridge
				claims = append(claims, apart.strip(key, &r)...)
				out = append(out, r)
			}
		}
	}
	return out, claims
}

// rule is one port of a Service.
func (s service) rule(name string, p port, of []slice) nft.Service {
	r := nft.Service{
		Name: name, Protocol: p.protocol, IPs: s.ips, External: s.external, Port: p.port, NodePort: p.nodePort,
		ExternalLocal: s.externalLocal, InternalLocal: s.internalLocal, Affinity: s.affinity,
	}
	known := endpoints(of, p)
	for _, v4 := range []bool{true, false} {
		// Each family has those that leave on its own.
		r.Endpoints = append(r.Endpoints, usable(known, v4, func(end) bool { return true })...)
		if s.externalLocal || s.internalLocal {
			r.LocalEndpoints = append(r.LocalEndpoints, usable(known, v4, func(e end) bool { return e.local })...)
		}
	}
	return r
}

// endpoints are those of a port. Of two with the same address, such as one that
// has ended and the next pod of its address, the one that stays counts.
func endpoints(of []slice, p port) map[netip.AddrPort]end {
	all := make(map[netip.AddrPort]end)
	for _, s := range of {
		for _, t := range s.ports {
			if t.name != p.name || t.protocol != p.protocol {
				continue
			}
			for _, e := range s.ends {
				at := netip.AddrPortFrom(e.address, t.port)
				if _, there := all[at]; !there || !e.terminating {
					all[at] = e
				}
			}
		}
	}
	return all
}

// usable are the endpoints of a family that connections are led to: those that
// are ready, or, without any, those that leave but still answer.
func usable(all map[netip.AddrPort]end, v4 bool, takes func(end) bool) []netip.AddrPort {
	var ready, leaving []netip.AddrPort
	for at, e := range all {
		switch {
		case at.Addr().Is4() != v4 || !takes(e):
		case e.ready:
			ready = append(ready, at)
		case e.leaving:
			leaving = append(leaving, at)
		}
	}
	if len(ready) == 0 {
		ready = leaving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return ready
}
