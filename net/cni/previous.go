package cni

import (
	"math"
	"net"
	"net/netip"
)

// maxResultItems is the maximum number of interfaces, of addresses and of routes of a
// result.
const maxResultItems = 1024

// readResult reads a result of version 0.3.0 or later. The fields that it reads are the
// same in all of these versions. It determines the IP version from the address.
func readResult(value []byte) (*Result, *Error) {
	d := &decoder{}
	r := &Result{}
	d.object(&location{key: "prevResult"}, value, func(at *location, value []byte) {
		switch at.key {
		case "interfaces":
			r.Interfaces = nil
			d.array(at, value, maxResultItems, func(at *location, value []byte) {
				r.Interfaces = append(r.Interfaces, d.resultInterface(at, value))
			})
		case "ips":
			r.IPs = nil
			d.array(at, value, maxResultItems, func(at *location, value []byte) { r.IPs = append(r.IPs, d.resultIP(at, value)) })
		case "routes":
			r.Routes = nil
			d.array(at, value, maxResultItems, func(at *location, value []byte) { r.Routes = append(r.Routes, d.resultRoute(at, value)) })
		}
	})
	if err := r.validate(); err != nil {
		d.fail(&location{key: "prevResult"}, CodeInvalidConfig, "%v: pass the result of ADD", err)
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (d *decoder) resultInterface(at *location, value []byte) (i Interface) {
	d.object(at, value, func(at *location, value []byte) {
		switch at.key {
		case "name":
			i.Name = d.str(at, value)
		case "mac":
			i.MAC = d.anyMAC(at, value)
		case "mtu":
			i.MTU = int(d.number(at, value, math.MaxInt32))
		case "sandbox":
			i.Sandbox = d.str(at, value)
		}
	})
	return i
}

// anyMAC returns a link-layer address of any kind: the interface of another plugin may not
// be Ethernet.
func (d *decoder) anyMAC(at *location, value []byte) net.HardwareAddr {
	text := d.str(at, value)
	mac, err := net.ParseMAC(text)
	if text != "" && err != nil {
		d.fail(at, CodeInvalidConfig, "%s is not a MAC address: pass the result of ADD", quoteShort(text))
	}
	return mac
}

func (d *decoder) resultIP(at *location, value []byte) IP {
	ip := IP{Interface: NoInterface}
	d.object(at, value, func(at *location, value []byte) {
		switch at.key {
		case "address":
			ip.Address = d.prefix(at, value)
		case "gateway":
			ip.Gateway = d.optionalAddress(at, value)
		case "interface":
			if string(value) != "-1" { // plugins of 0.3 write -1 for no interface
				ip.Interface = int(d.number(at, value, maxResultItems))
			}
		}
	})
	return ip
}

// optionalAddress returns an address, or the zero Addr for an empty string, which net.IP
// encodes for no address.
func (d *decoder) optionalAddress(at *location, value []byte) netip.Addr {
	text := d.str(at, value)
	if text == "" {
		return netip.Addr{}
	}
	return d.parseAddress(at, text)
}

func (d *decoder) resultRoute(at *location, value []byte) (r Route) {
	d.object(at, value, func(at *location, value []byte) {
		number := func() uint32 { return uint32(d.number(at, value, math.MaxUint32)) }
		switch at.key {
		case "dst":
			r.Dst = d.prefix(at, value)
		case "gw":
			r.Gateway = d.optionalAddress(at, value)
		case "mtu":
			r.MTU = number()
		case "advmss":
			r.AdvMSS = number()
		case "priority":
			r.Priority = number()
		case "table":
			r.Table = number()
		case "scope":
			r.Scope = number()
		}
	})
	return r
}
