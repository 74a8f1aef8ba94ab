package cni

import (
	"net"
	"net/netip"
	"strings"
)

const (
	maxPorts       = 1024
	maxIPs         = 16
	maxAttachments = 1 << 20 // more than fit into a document
)

// The key of what GC has to leave alone, and as libcni spells it besides, after
// a draft of the specification.
const (
	validKey      = "cni.dev/valid-attachments"
	draftValidKey = "cni.dev/attachments"
)

// request is all that a document on standard input says.
type request struct {
	config     Config
	ports      []Port
	bandwidth  Bandwidth
	ips        []netip.Addr
	mac        net.HardwareAddr
	argIPs     []netip.Addr // those of args.cni, which runtimeConfig overrides
	argMAC     net.HardwareAddr
	prevResult []byte // the result of the plugin before, nil if there is none
	ipam       []byte // the configuration of another plugin, nil if there is none
	valid      []ID
	hasValid   bool
}

// parseRequest reads a document as far as it goes. The fault is nil where it is sound.
func parseRequest(data []byte) (*request, error) {
	d := &decoder{}
	r := &request{config: Default()}
	d.document(data, func(at *location, value []byte) { r.readField(d, at, value) })
	if d.err != nil {
		return r, d.err
	}
	return r, nil
}

func (r *request) readField(d *decoder, at *location, value []byte) {
	key := string(at.key)
	if isNull(value) && key != validKey && key != draftValidKey {
		return
	}
	switch key {
	case "runtimeConfig":
		d.object(at, value, func(at *location, value []byte) { r.readCapability(d, at, value) })
	case "args":
		r.readArgs(d, at, value)
	case "prevResult":
		r.prevResult = value
	case "ipam":
		r.ipam = value
	case validKey:
		r.readAttachments(d, at, value)
	case draftValidKey:
		if !r.hasValid {
			r.readAttachments(d, at, value)
		}
	default:
		r.config.readField(d, at, value)
	}
}

// readCapability reads one of those that the runtime was told the plugin has.
func (r *request) readCapability(d *decoder, at *location, value []byte) {
	switch string(at.key) {
	case "portMappings":
		r.ports = nil
		d.array(at, value, maxPorts, func(at *location, value []byte) { r.readPort(d, at, value) })
	case "bandwidth":
		r.readBandwidth(d, at, value)
	case "ips":
		r.ips = d.containerAddresses(at, value)
	case "mac":
		r.mac = d.mac(at, d.str(at, value))
	}
}

// readArgs reads what stands under args.cni; the rest is other plugins'.
func (r *request) readArgs(d *decoder, at *location, value []byte) {
	d.object(at, value, func(at *location, value []byte) {
		if string(at.key) != "cni" {
			return
		}
		d.object(at, value, func(at *location, value []byte) {
			switch string(at.key) {
			case "ips":
				r.argIPs = d.containerAddresses(at, value)
			case "mac":
				r.argMAC = d.mac(at, d.str(at, value))
			}
		})
	})
}

// lowerKey is the key without its case: containerd writes HostPort where CRI-O
// writes hostPort, and encoding/json, which reads it in other plugins, takes
// the one for the other.
func lowerKey(at *location) string { return strings.ToLower(string(at.key)) }

// readPort reads a port of the host. Two that are the same are one.
func (r *request) readPort(d *decoder, at *location, value []byte) {
	p := Port{Protocol: "tcp"}
	d.object(at, value, func(at *location, value []byte) {
		switch lowerKey(at) {
		case "hostport":
			p.HostPort = uint16(d.number(at, value, 65535))
		case "containerport":
			p.ContainerPort = uint16(d.number(at, value, 65535))
		case "protocol":
			p.Protocol = strings.ToLower(d.str(at, value))
		case "hostip":
			if text := d.str(at, value); text != "" {
				p.HostIP = d.parseAddress(at, text)
			}
		}
	})
	switch p.Protocol {
	case "tcp", "udp", "sctp":
	case "":
		p.Protocol = "tcp"
	default:
		d.fail(at, CodeInvalidConfig, "protocol %s is not known: write tcp, udp or sctp", quoteShort(p.Protocol))
		return
	}
	if p.HostPort == 0 || p.ContainerPort == 0 {
		d.fail(at, CodeInvalidConfig, "hostPort is %d and containerPort is %d: write numbers from 1 to 65535", p.HostPort, p.ContainerPort)
		return
	}
	r.addPort(d, at, p)
}

func (r *request) addPort(d *decoder, at *location, p Port) {
	for _, other := range r.ports {
		if other.HostPort != p.HostPort || other.Protocol != p.Protocol || other.HostIP != p.HostIP {
			continue
		}
		if other.ContainerPort != p.ContainerPort {
			d.fail(at, CodeInvalidConfig, "port %d/%s of the host leads to port %d of the container already, not to %d: leave one of them out",
				p.HostPort, p.Protocol, other.ContainerPort, p.ContainerPort)
		}
		return
	}
	r.ports = append(r.ports, p)
}

func (r *request) readBandwidth(d *decoder, at *location, value []byte) {
	var b Bandwidth
	d.object(at, value, func(at *location, value []byte) {
		var into *uint64
		switch lowerKey(at) {
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
		d.fail(at, CodeInvalidConfig, "there is a burst without a rate: write both, or none")
		return
	}
	r.bandwidth = b
}

// containerAddresses are those that are asked for, with or without a length of prefix,
// which is that of the range.
func (d *decoder) containerAddresses(at *location, value []byte) (ips []netip.Addr) {
	d.array(at, value, maxIPs, func(at *location, value []byte) {
		if a := d.containerAddress(at, d.str(at, value)); a.IsValid() {
			ips = append(ips, a)
		}
	})
	return ips
}

// containerAddress is an address that a container can have.
func (d *decoder) containerAddress(at *location, text string) netip.Addr {
	bare, _, _ := strings.Cut(text, "/")
	if _, err := netip.ParsePrefix(text); err != nil && bare != text {
		d.fail(at, CodeInvalidConfig, `%s is no address: write one like "10.42.0.7" or "10.42.0.7/24"`, quoteShort(text))
		return netip.Addr{}
	}
	a := d.parseAddress(at, bare)
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
		d.fail(at, CodeInvalidConfig, "%v is no address for a container: write one of a range", a)
		return netip.Addr{}
	}
	return a
}

// readAttachments reads those that GC has to leave alone. All of them are needed,
// so none is passed over. null is what libcni writes for none.
func (r *request) readAttachments(d *decoder, at *location, value []byte) {
	r.valid, r.hasValid = nil, true
	if isNull(value) {
		return
	}
	d.array(at, value, maxAttachments, func(at *location, value []byte) {
		var id ID
		d.object(at, value, func(at *location, value []byte) {
			switch string(at.key) {
			case "containerID":
				id.ContainerID = d.str(at, value)
			case "ifname":
				id.Interface = d.str(at, value)
			}
		})
		if !isName(id.ContainerID) || !isInterface(id.Interface) {
			d.fail(at, CodeInvalidConfig, "containerID %s with ifname %s is no attachment: write them as they were given to ADD",
				quoteShort(id.ContainerID), quoteShort(id.Interface))
		}
		r.valid = append(r.valid, id)
	})
}
