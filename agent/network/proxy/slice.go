package proxy

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/net/nft"
)

// slice are the used fields of an EndpointSlice.
type slice struct {
	service string // name of the Service in the same namespace
	ports   []target
	ends    []endpoint
}

// target is a port of all endpoints of a slice.
type target struct {
	name     string
	protocol nft.Protocol
	port     uint16
}

// endpoint is an endpoint that is ready, or terminating and still serving. Others are not
// kept.
type endpoint struct {
	address netip.Addr
	local   bool // on this node
	ready   bool
	// servingTerminating means that the endpoint is terminating and still serving.
	servingTerminating bool
	terminating        bool
}

// keepSlice returns the used fields of an EndpointSlice. ok is false if it has no
// usable port or endpoint.
func keepSlice(o runtime.Object, nodeName string) (slice, bool) {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || es.Labels[discoveryv1.LabelServiceName] == "" {
		return slice{}, false
	}
	s := slice{service: es.Labels[discoveryv1.LabelServiceName]}
	for i := range es.Ports {
		p := &es.Ports[i]
		if p.Name == nil || p.Port == nil {
			continue
		}
		protocol, known := protocolOf(ptr.Deref(p.Protocol, v1.ProtocolTCP))
		if port, valid := portOf(*p.Port); known && valid {
			s.ports = append(s.ports, target{*p.Name, protocol, port})
		}
	}
	for i := range es.Endpoints {
		if e, ok := keepEnd(&es.Endpoints[i], nodeName); ok {
			s.ends = append(s.ends, e)
		}
	}
	return s, len(s.ports) > 0 && len(s.ends) > 0
}

// keepEnd returns the used fields of an endpoint. All its addresses belong to the
// same pod, so only the first is used.
func keepEnd(e *discoveryv1.Endpoint, nodeName string) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	a, ok := address(e.Addresses[0])
	if !ok {
		return endpoint{}, false
	}
	out := endpoint{
		address: a, local: e.NodeName != nil && *e.NodeName == nodeName,
		ready:       ptr.Deref(e.Conditions.Ready, true),
		terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
	out.servingTerminating = out.terminating && ptr.Deref(e.Conditions.Serving, true)
	return out, out.ready || out.servingTerminating
}

func sameSlice(a, b slice) bool {
	return a.service == b.service && slices.Equal(a.ports, b.ports) && slices.Equal(a.ends, b.ends)
}
