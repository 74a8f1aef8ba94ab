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
func readResult(value []byte) (*Result, error) {
	d := &decoder{}
	r := &Result{}
	d.object(&location{key: "prevResult"}, value, func(at *location, value []byte) {
		switch at.key {
		case "interfaces":
			r.Interfaces = elements(d, at, value, maxResultItems, d.resultInterface)
		case "ips":
			r.IPs = elements(d, at, value, maxResultItems, d.resultIP)
		case "routes":
			r.Routes = elements(d, at, value, maxResultItems, d.resultRoute)
		}
	})
	if err := r.validate(); err != nil {
		d.fail(&location{key: "prevResult"}, CodeInvalidConfig, "%v: pass the result of ADD", err)
	}
	return r, d.err
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
	numbers := map[string]*uint32{"mtu": &r.MTU, "advmss": &r.AdvMSS, "priority": &r.Priority, "table": &r.Table, "scope": &r.Scope}
	d.object(at, value, func(at *location, value []byte) {
		switch into := numbers[at.key]; {
		case at.key == "dst":
			r.Dst = d.prefix(at, value)
		case at.key == "gw":
			r.Gateway = d.optionalAddress(at, value)
		case into != nil:
			*into = uint32(d.number(at, value, math.MaxUint32))
		}
	})
	return r
}
