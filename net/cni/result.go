package cni

import (
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
	Dst netip.Prefix
	// Gateway is the zero Addr for the gateway of an IP.
	Gateway netip.Addr
	// MTU and AdvMSS are in bytes. The lowest Priority is preferred. Scope is 253 for link
	// and 254 for host.
	MTU, AdvMSS, Priority, Table, Scope uint32
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

// appendResult appends a result in the format of a version.
func appendResult(dst []byte, v specVersion, r *Result) []byte {
	dst = append(dst, `{"cniVersion":`...)
	dst = appendString(dst, versions[v])
	dst = append(dst, `,"interfaces":[`...)
	for i := range r.Interfaces {
		dst = appendInterface(appendComma(dst, i), v, &r.Interfaces[i])
	}
	dst = append(dst, `],"ips":[`...)
	for i := range r.IPs {
		dst = appendIP(appendComma(dst, i), v, &r.IPs[i])
	}
	dst = append(dst, `],"routes":[`...)
	for i := range r.Routes {
		dst = appendRoute(appendComma(dst, i), v, &r.Routes[i])
	}
	return append(dst, "],\"dns\":{}}\n"...)
}

func appendInterface(dst []byte, v specVersion, i *Interface) []byte {
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, i.Name)
	if len(i.MAC) > 0 {
		dst = append(dst, `,"mac":`...)
		dst = appendString(dst, i.MAC.String())
	}
	if v >= spec110 {
		dst = appendNonZero(dst, `,"mtu":`, uint32(max(i.MTU, 0)))
	}
	if i.Sandbox != "" {
		dst = append(dst, `,"sandbox":`...)
		dst = appendString(dst, i.Sandbox)
	}
	return append(dst, '}')
}

func appendIP(dst []byte, v specVersion, ip *IP) []byte {
	dst = append(dst, '{')
	if v < spec100 {
		family := "6"
		if ip.Address.Addr().Is4() {
			family = "4"
		}
		dst = append(dst, `"version":"`+family+`",`...)
	}
	dst = append(dst, `"address":"`...)
	dst = append(ip.Address.AppendTo(dst), '"')
	dst = appendAddress(dst, `,"gateway":"`, ip.Gateway)
	if ip.Interface != NoInterface {
		dst = appendNumber(dst, `,"interface":`, uint32(ip.Interface))
	}
	return append(dst, '}')
}

func appendRoute(dst []byte, v specVersion, r *Route) []byte {
	dst = append(dst, `{"dst":"`...)
	dst = append(r.Dst.AppendTo(dst), '"')
	dst = appendAddress(dst, `,"gw":"`, r.Gateway)
	if v >= spec110 {
		dst = appendNonZero(dst, `,"mtu":`, r.MTU)
		dst = appendNonZero(dst, `,"advmss":`, r.AdvMSS)
		dst = appendNonZero(dst, `,"priority":`, r.Priority)
		dst = appendNonZero(dst, `,"table":`, r.Table)
		dst = appendNonZero(dst, `,"scope":`, r.Scope)
	}
	return append(dst, '}')
}
