package cni

import (
	"net"
	"net/netip"
	"strings"
)

const (
	maxPorts    = 1024
	maxIPs      = 16
	maxAttached = 1 << 20 // more than fit into a document
)

// The key of what GC has to leave alone, and as libcni spells it besides, after
// a draft of the specification.
const (
	validKey    = "cni.dev/valid-attachments"
	oldValidKey = "cni.dev/attachments"
)

// request is all that a document on standard input says.
type request struct {
	config    Config
	ports     []Port
	bandwidth Bandwidth
	ips       []netip.Addr
	mac       net.HardwareAddr
	argIPs    []netip.Addr // those of args.cni, which runtimeConfig overrides
	argMAC    net.HardwareAddr
	prev      []byte // the result of the plugin before, nil if there is none
	ipam      []byte // the configuration of another plugin, nil if there is none
	valid     []ID
	hasValid  bool
}

// read reads a document as far as it goes. The fault is nil where it is sound.
func read(data []byte) (*request, error) {
	d := &decoder{}
	r := &request{config: Default()}
	d.document(data, func(at *place, value []byte) { r.field(d, at, value) })
	if d.fault != nil {
		return r, d.fault
	}
	return r, nil
}

func (r *request) field(d *decoder, at *place, value []byte) {
	key := string(at.key)
	if isNull(value) && key != validKey && key != oldValidKey {
		return
	}
	switch key {
	case "runtimeConfig":
		d.object(at, value, func(at *place, value []byte) { r.capability(d, at, value) })
	case "args":
		r.args(d, at, value)
	case "prevResult":
		r.prev = value
	case "ipam":
		r.ipam = value
	case validKey:
		r.attachments(d, at, value)
	case oldValidKey:
		if !r.hasValid {
			r.attachments(d, at, value)
		}
	default:
		r.config.field(d, at, value)
	}
}

// capability reads one of those that the runtime was told the plugin has.
func (r *request) capability(d *decoder, at *place, value []byte) {
	switch string(at.key) {
	case "portMappings":
		r.ports = nil
		d.list(at, value, maxPorts, func(at *place, value []byte) { r.port(d, at, value) })
	case "bandwidth":
		r.limit(d, at, value)
	case "ips":
		r.ips = d.addresses(at, value)
	case "mac":
		r.mac = d.mac(at, d.text(at, value))
	}
}

// args reads what stands under args.cni; the rest is other plugins'.
func (r *request) args(d *decoder, at *place, value []byte) {
	d.object(at, value, func(at *place, value []byte) {
		if string(at.key) != "cni" {
			return
		}
		d.object(at, value, func(at *place, value []byte) {
			switch string(at.key) {
			case "ips":
				r.argIPs = d.addresses(at, value)
			case "mac":
				r.argMAC = d.mac(at, d.text(at, value))
			}
		})
	})
}

// folded is the key without its case: containerd writes HostPort where CRI-O
// writes hostPort, and encoding/json, which reads it in other plugins, takes
// the one for the other.
func folded(at *place) string { return strings.ToLower(string(at.key)) }

// port reads a port of the host. Two that are the same are one.
func (r *request) port(d *decoder, at *place, value []byte) {
	p := Port{Protocol: "tcp"}
	d.object(at, value, func(at *place, value []byte) {
		switch folded(at) {
		case "hostport":
			p.HostPort = uint16(d.number(at, value, 65535))
		case "containerport":
			p.ContainerPort = uint16(d.number(at, value, 65535))
		case "protocol":
			p.Protocol = strings.ToLower(d.text(at, value))
		case "hostip":
			if text := d.text(at, value); text != "" {
				p.HostIP = d.addressOf(at, text)
			}
		}
	})
	switch p.Protocol {
	case "tcp", "udp", "sctp":
	case "":
		p.Protocol = "tcp"
	default:
		d.fail(at, CodeConfig, "protocol %s is not known: write tcp, udp or sctp", shown(p.Protocol))
		return
	}
	if p.HostPort == 0 || p.ContainerPort == 0 {
		d.fail(at, CodeConfig, "hostPort is %d and containerPort is %d: write numbers from 1 to 65535", p.HostPort, p.ContainerPort)
		return
	}
	r.addPort(d, at, p)
}

func (r *request) addPort(d *decoder, at *place, p Port) {
	for _, other := range r.ports {
		if other.HostPort != p.HostPort || other.Protocol != p.Protocol || other.HostIP != p.HostIP {
			continue
		}
		if other.ContainerPort != p.ContainerPort {
			d.fail(at, CodeConfig, "port %d/%s of the host leads to port %d of the container already, not to %d: leave one of them out",
				p.HostPort, p.Protocol, other.ContainerPort, p.ContainerPort)
		}
		return
	}
	r.ports = append(r.ports, p)
}

func (r *request) limit(d *decoder, at *place, value []byte) {
	var b Bandwidth
	d.object(at, value, func(at *place, value []byte) {
		var into *uint64
		switch folded(at) {
		case "ingressrate":
			into = &b.IngressRate
		case "ingressburst":
			into = &b.IngressBurst
		case "egressrate":
			into = &b.EgressRate
		case "egressburst":
			into = &b.EgressBurst
		default:
			return
		}
		*into = d.number(at, value, 1<<64-1)
	})
	if b.IngressRate == 0 && b.IngressBurst != 0 || b.EgressRate == 0 && b.EgressBurst != 0 {
		d.fail(at, CodeConfig, "there is a burst without a rate: write both, or none")
		return
	}
	r.bandwidth = b
}

// addresses are those that are asked for, with or without a length of prefix,
// which is that of the range.
func (d *decoder) addresses(at *place, value []byte) (ips []netip.Addr) {
	d.list(at, value, maxIPs, func(at *place, value []byte) {
		if a := d.host(at, d.text(at, value)); a.IsValid() {
			ips = append(ips, a)
		}
	})
	return ips
}

// host is an address that a container can have.
func (d *decoder) host(at *place, text string) netip.Addr {
	bare, _, _ := strings.Cut(text, "/")
	if _, err := netip.ParsePrefix(text); err != nil && bare != text {
		d.fail(at, CodeConfig, `%s is no address: write one like "10.42.0.7" or "10.42.0.7/24"`, shown(text))
		return netip.Addr{}
	}
	a := d.addressOf(at, bare)
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
		d.fail(at, CodeConfig, "%v is no address for a container: write one of a range", a)
		return netip.Addr{}
	}
	return a
}

// attachments reads those that GC has to leave alone. All of them are needed,
// so none is passed over. null is what libcni writes for none.
func (r *request) attachments(d *decoder, at *place, value []byte) {
	r.valid, r.hasValid = nil, true
	if isNull(value) {
		return
	}
	d.list(at, value, maxAttached, func(at *place, value []byte) {
		var id ID
		d.object(at, value, func(at *place, value []byte) {
			switch string(at.key) {
			case "containerID":
				id.ContainerID = d.text(at, value)
			case "ifname":
				id.Interface = d.text(at, value)
			}
		})
		if !isName(id.ContainerID) || !isInterface(id.Interface) {
			d.fail(at, CodeConfig, "containerID %s with ifname %s is no attachment: write them as they were given to ADD",
				shown(id.ContainerID), shown(id.Interface))
		}
		r.valid = append(r.valid, id)
	})
}
