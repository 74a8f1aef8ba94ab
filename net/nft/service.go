package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Service is one port of a Kubernetes service. Addresses may be of both IP
// versions; those of one lead to endpoints of the same.
type Service struct {
	// Name is for people, such as shop/web:http. No two services of a protocol
	// have the same.
	Name string
	// Protocol is TCP, UDP or SCTP.
	Protocol Protocol
	// IPs are the cluster IPs.
	IPs []netip.Addr
	// External are external IPs and those of load balancers.
	External []netip.Addr
	// Port is the port on IPs and External.
	Port uint16
	// NodePort is the port on this machine's addresses, 0 if there is none.
	NodePort uint16
	// Endpoints are all pods that answer, LocalEndpoints those of this node.
	Endpoints      []netip.AddrPort
	LocalEndpoints []netip.AddrPort
	// ExternalLocal has External and NodePort lead to local endpoints alone,
	// and shows these the clients' own addresses; but this machine and what comes
	// from Bridge, its pods', are led to all. InternalLocal has IPs lead to local
	// endpoints alone.
	ExternalLocal, InternalLocal bool
	Bridge                       string
	// Affinity is how long a client that has not come back goes on to the same
	// endpoint, in whole seconds; 0 has each connection led anywhere.
	Affinity time.Duration
}

// maxAffinity is Kubernetes' own bound, a day.
const maxAffinity = 24 * time.Hour

// Check is why SyncServices does not take the service.
func (s *Service) Check() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("a service of port %d has no name", s.Port)
	case !s.Protocol.valid():
		return fmt.Errorf("service %.80q: protocol %d is none of TCP, UDP and SCTP", s.Name, s.Protocol)
	case s.Port == 0:
		return fmt.Errorf("service %.80q has no port", s.Name)
	case s.Bridge != "" && !validInterface(s.Bridge):
		return fmt.Errorf("service %.80q: bridge %.40q is no name of an interface", s.Name, s.Bridge)
	case s.Affinity < 0 || s.Affinity > maxAffinity:
		return fmt.Errorf("service %.80q: affinity of %v is not between 0 and %v", s.Name, s.Affinity, maxAffinity)
	}
	for _, a := range slices.Concat(s.IPs, s.External) {
		if !usable(a) {
			return fmt.Errorf("service %.80q: address %s cannot be used", s.Name, a)
		}
	}
	for _, e := range slices.Concat(s.Endpoints, s.LocalEndpoints) {
		if !usable(e.Addr()) || e.Port() == 0 {
			return fmt.Errorf("service %.80q: endpoint %s cannot be used", s.Name, e)
		}
	}
	return nil
}

func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Unmap().IsUnspecified()
}

// endpoints are those of a family, in order, each once.
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

// servicePrefix starts the names of all that SyncServices makes.
const servicePrefix = "service"

// nameLimit bounds the part of a chain's name that is the service's, in bytes.
const nameLimit = 100

// chainName is the name of a chain of the service, which the nft program reads
// as one word: the service's name where that allows it, and a number made of
// all of it.
func (s *Service) chainName(kind string, f family) string {
	text := []byte(s.Name[:min(len(s.Name), nameLimit)])
	for i, c := range text {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '/':
		default:
			text[i] = '_'
		}
	}
	digest := sha256.Sum256(append([]byte{byte(s.Protocol)}, s.Name...))
	return fmt.Sprintf("%s%d-%s-%s", kind, f.version(), hex.EncodeToString(digest[:8]), text)
}

func (f family) version() int {
	if f == ipv4 {
		return 4
	}
	return 6
}
