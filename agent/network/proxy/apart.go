package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/nft"
)

// maxRejections bounds the reported rejections: users who may create Services may create
// any number.
const maxRejections = 64

// apart is what no Service may have on this node.
type apart struct {
	// servers are the addresses of the API server. If they were redirected, the
	// node could not learn of the Service's deletion.
	servers []netip.Addr
	// routers are the addresses of the routers of the node's uplinks.
	routers []netip.Addr
	// own are this machine's addresses. No Service gets them with one of ports.
	own   []netip.Addr
	ports []uint16
}

// rejection is a rejected address or port of a Service.
type rejection struct {
	key listwatch.Key
	why string
}

func (c rejection) String() string {
	return fmt.Sprintf("Service %.63q of namespace %.63q does not get %s on this node", c.key.Name, c.key.Namespace, c.why)
}

// kubernetes is the Service by which pods reach the API server. Its cluster IP may
// also be the address by which this node reaches the API server.
var kubernetes = listwatch.Key{Namespace: "default", Name: "kubernetes"}

// strip removes from a Service's port the addresses and the node port that it may not
// have, and returns them as rejections. Endpoints are not restricted: those of
// default/kubernetes are the API server.
func (a *apart) strip(key listwatch.Key, s *nft.Service) (claims []rejection) {
	ours := s.Protocol == nft.TCP && slices.Contains(a.ports, s.Port)
	keep := func(all []netip.Addr, cluster bool) (kept []netip.Addr) {
		for _, ip := range all {
			why := ""
			switch {
			case slices.Contains(a.servers, ip) && !(cluster && key == kubernetes):
				why = fmt.Sprintf("%v, the API server's address", ip)
			case slices.Contains(a.routers, ip):
				why = fmt.Sprintf("%v, the address of this node's router", ip)
			case ours && slices.Contains(a.own, ip):
				why = fmt.Sprintf("%v, the node's own port", netip.AddrPortFrom(ip, s.Port))
			}
			if why == "" {
				kept = append(kept, ip)
				continue
			}
			claims = append(claims, rejection{key, why})
		}
		return kept
	}
	s.IPs, s.External = keep(s.IPs, true), keep(s.External, false)
	if s.Protocol == nft.TCP && slices.Contains(a.ports, s.NodePort) {
		claims = append(claims, rejection{key, fmt.Sprintf("node port %d, the node's own port", s.NodePort)})
		s.NodePort = 0
	}
	return claims
}

// table returns the same restrictions for the nftables table, which enforces them
// against Services that the node does not know in their current state. If the API
// server is reached by the cluster IP of default/kubernetes, that address belongs
// to a Service.
func (a *apart) table(all map[listwatch.Key]service) nft.Apart {
	hosts := slices.DeleteFunc(slices.Concat(a.servers, a.routers), func(ip netip.Addr) bool {
		return slices.Contains(all[kubernetes].ips, ip)
	})
	return nft.Apart{Hosts: hosts, Ports: a.ports}
}
