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

// convert returns the sorted input of the table for all Services and their
// EndpointSlices. It omits what Services may not have, and returns the rejections.
func convert(all map[listwatch.Key]service, ends map[listwatch.Key]slice, bridge string, apart apart) (out []nft.Service, claims []rejection) {
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
	// Names of Services have no colon, but only the API server enforces that.
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

// rule returns the rule of one port of a Service.
func (s service) rule(name string, p port, of []slice) nft.Service {
	r := nft.Service{
		Name: name, Protocol: p.protocol, IPs: s.ips, External: s.external, Port: p.port, NodePort: p.nodePort,
		ExternalLocal: s.externalLocal, InternalLocal: s.internalLocal, Affinity: s.affinity,
	}
	known := endpoints(of, p)
	for _, v4 := range []bool{true, false} {
		// Each family falls back to its terminating endpoints separately.
		r.Endpoints = append(r.Endpoints, usable(known, v4, func(endpoint) bool { return true })...)
		if s.externalLocal || s.internalLocal {
			r.LocalEndpoints = append(r.LocalEndpoints, usable(known, v4, func(e endpoint) bool { return e.local })...)
		}
	}
	return r
}

// endpoints returns the endpoints of a port. Of two with the same address, such as
// a terminated pod and the next pod with its address, the one that is not
// terminating counts.
func endpoints(of []slice, p port) map[netip.AddrPort]endpoint {
	all := make(map[netip.AddrPort]endpoint)
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

// usable returns the endpoints of a family that get connections: the ready ones, or
// without any those that are terminating and still serving.
func usable(all map[netip.AddrPort]endpoint, v4 bool, takes func(endpoint) bool) []netip.AddrPort {
	var ready, leaving []netip.AddrPort
	for at, e := range all {
		switch {
		case at.Addr().Is4() != v4 || !takes(e):
		case e.ready:
			ready = append(ready, at)
		case e.servingTerminating:
			leaving = append(leaving, at)
		}
	}
	if len(ready) == 0 {
		ready = leaving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return ready
}
