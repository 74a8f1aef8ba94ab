package cni

import (
	"math"
	"net"
	"net/netip"
)

// maxParts is how many interfaces, addresses or routes a result has at most.
const maxParts = 1024

// readResult reads the result of a version from 0.3.0 on. In what it is read
// for they do not differ: the IP version of an address is that of the address.
func readResult(value []byte) (*Result, *Error) {
	d := &decoder{}
	r := &Result{}
	d.object(&place{key: []byte("prevResult")}, value, func(at *place, value []byte) {
		switch string(at.key) {
		case "interfaces":
			r.Interfaces = nil
			d.list(at, value, maxParts, func(at *place, value []byte) {
				r.Interfaces = append(r.Interfaces, d.oneInterface(at, value))
			})
		case "ips":
			r.IPs = nil
			d.list(at, value, maxParts, func(at *place, value []byte) { r.IPs = append(r.IPs, d.oneIP(at, value)) })
		case "routes":
			r.Routes = nil
			d.list(at, value, maxParts, func(at *place, value []byte) { r.Routes = append(r.Routes, d.oneRoute(at, value)) })
		}
	})
	if err := r.sound(); err != nil {
		d.fail(&place{key: []byte("prevResult")}, CodeConfig, "%v: hand over what ADD has answered", err)
	}
	if d.fault != nil {
		return nil, d.fault
	}
	return r, nil
}

func (d *decoder) oneInterface(at *place, value []byte) (i Interface) {
	d.object(at, value, func(at *place, value []byte) {
		switch string(at.key) {
		case "name":
			i.Name = d.text(at, value)
		case "mac":
			i.MAC = d.anyMAC(at, value)
		case "mtu":
			i.MTU = int(d.number(at, value, math.MaxInt32))
		case "sandbox":
			i.Sandbox = d.text(at, value)
		}
	})
	return i
}

// anyMAC is an address of any kind of interface: another plugin's may be no
// Ethernet.
func (d *decoder) anyMAC(at *place, value []byte) net.HardwareAddr {
	text := d.text(at, value)
	mac, err := net.ParseMAC(text)
	if text != "" && err != nil {
		d.fail(at, CodeConfig, "%s is no MAC address: hand over what ADD has answered", shown(text))
	}
	return mac
}

func (d *decoder) oneIP(at *place, value []byte) IP {
	ip := IP{Interface: NoInterface}
	d.object(at, value, func(at *place, value []byte) {
		switch string(at.key) {
		case "address":
			ip.Address = d.prefix(at, value)
		case "gateway":
			ip.Gateway = d.maybeAddress(at, value)
		case "interface":
			if string(value) != "-1" { // so plugins of 0.3 write that there is none
				ip.Interface = int(d.number(at, value, maxParts))
			}
		}
	})
	return ip
}

// maybeAddress is an address, or none where the text is empty, as net.IP has it.
func (d *decoder) maybeAddress(at *place, value []byte) netip.Addr {
	text := d.text(at, value)
	if text == "" {
		return netip.Addr{}
	}
	return d.addressOf(at, text)
}

func (d *decoder) oneRoute(at *place, value []byte) (r Route) {
	d.object(at, value, func(at *place, value []byte) {
		number := func() uint32 { return uint32(d.number(at, value, math.MaxUint32)) }
		switch string(at.key) {
		case "dst":
			r.Dst = d.prefix(at, value)
		case "gw":
			r.Gateway = d.maybeAddress(at, value)
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
