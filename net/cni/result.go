package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Result is the result of ADD: the interfaces, addresses and routes of an attachment.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
}

// Interface is an interface of the attachment, in the container or on the host.
type Interface struct {
	Name string
	// MAC may be nil.
	MAC net.HardwareAddr
	// MTU is in bytes, 0 if unknown. Versions before 1.1.0 do not have it.
	MTU int
	// Sandbox is the container's network namespace (Attachment.NetNS), "" for an interface
	// on the host.
	Sandbox string
}

// NoInterface is the index of an address without an interface.
const NoInterface = -1

// IP is an address of the attachment.
type IP struct {
	// Interface is the index in Result.Interfaces, or NoInterface.
	Interface int
	// Address is the address with the prefix length of its network.
	Address netip.Prefix
	// Gateway may be the zero Addr.
	Gateway netip.Addr
}

// Route is a route in the container. A number of 0 is not set: the kernel chooses it.
// Versions before 1.1.0 have only Dst and Gateway.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	// Gateway is the zero Addr for the gateway of an IP.
	Gateway netip.Addr `json:"gw,omitzero"`
	// MTU and AdvMSS are in bytes.
	MTU    uint32 `json:"mtu,omitempty"`
	AdvMSS uint32 `json:"advmss,omitempty"`
	// The lowest Priority is preferred.
	Priority uint32 `json:"priority,omitempty"`
	Table    uint32 `json:"table,omitempty"`
	// Scope is 253 for link and 254 for host.
	Scope uint32 `json:"scope,omitempty"`
}

// validate checks the addresses, interface indexes and destinations.
func (r *Result) validate() error {
	for i := range r.IPs {
		ip := &r.IPs[i]
		if !ip.Address.IsValid() {
			return errors.New("result has an invalid address")
		}
		if ip.Interface < NoInterface || ip.Interface >= len(r.Interfaces) {
			return fmt.Errorf("address %v of the result has interface index %d of %d interfaces", ip.Address, ip.Interface, len(r.Interfaces))
		}
	}
	for i := range r.Routes {
		if !r.Routes[i].Dst.IsValid() {
			return errors.New("result has a route without a destination")
		}
	}
	return nil
}

// resultJSON is the format of a result in version 0.3.0 and later.
type resultJSON struct {
	CNIVersion string          `json:"cniVersion"`
	Interfaces []interfaceJSON `json:"interfaces"`
	IPs        []ipJSON        `json:"ips"`
	Routes     []Route         `json:"routes"`
	DNS        struct{}        `json:"dns"`
}

type interfaceJSON struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"` // 1.1.0 and later
	Sandbox string `json:"sandbox,omitempty"`
}

type ipJSON struct {
	Version   string       `json:"version,omitempty"` // before 1.0.0
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
	Interface *int         `json:"interface,omitempty"`
}

// encodeResult encodes a result in the format of a version.
func encodeResult(v specVersion, r *Result) []byte {
	out := resultJSON{
		CNIVersion: versions[v],
		Interfaces: make([]interfaceJSON, 0, len(r.Interfaces)),
		IPs:        make([]ipJSON, 0, len(r.IPs)),
		Routes:     make([]Route, 0, len(r.Routes)),
	}
	for _, i := range r.Interfaces {
		item := interfaceJSON{Name: i.Name, MAC: i.MAC.String(), Sandbox: i.Sandbox}
		if v >= spec110 {
			item.MTU = max(i.MTU, 0)
		}
		out.Interfaces = append(out.Interfaces, item)
	}
	for _, ip := range r.IPs {
		item := ipJSON{Address: ip.Address, Gateway: ip.Gateway}
		if ip.Interface != NoInterface {
			item.Interface = &ip.Interface
		}
		if v < spec100 {
			item.Version = "6"
			if ip.Address.Addr().Is4() {
				item.Version = "4"
			}
		}
		out.IPs = append(out.IPs, item)
	}
	for _, r := range r.Routes {
		if v < spec110 {
			r = Route{Dst: r.Dst, Gateway: r.Gateway}
		}
		out.Routes = append(out.Routes, r)
	}
	return encode(out)
}

// encode returns v as one line of JSON. It panics if JSON cannot represent v, which is
// impossible for the types in this package.
func encode(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return out.Bytes()
}
