package cni

import (
	"net"
	"net/netip"
	"strings"
)

const (
	maxPorts       = 1024
	maxIPs         = 16
	maxAttachments = 1 << 20 // more than fit into maxStdin
)

// The keys of the valid attachments of GC: that of the specification, and that of a draft,
// which libcni writes in addition.
const (
	validKey      = "cni.dev/valid-attachments"
	draftValidKey = "cni.dev/attachments"
)

// request is the parsed network configuration on standard input.
type request struct {
	config     Config
	ports      []Port
	bandwidth  Bandwidth
	ips        []netip.Addr
	mac        net.HardwareAddr
	argIPs     []netip.Addr // of args.cni; runtimeConfig precedes them
	argMAC     net.HardwareAddr
	prevResult []byte // JSON, nil if there is none
	ipam       []byte // JSON of the IPAM plugin's configuration, nil if there is none
	valid      []ID
	hasValid   bool
}

// parseRequest parses a network configuration. With an error it also returns the fields that
// it could read.
func parseRequest(data []byte) (*request, error) {
	d := &decoder{}
	r := &request{config: Default()}
	d.document(data, func(at *location, value []byte) { r.readField(d, at, value) })
	return r, d.err
}

func (r *request) readField(d *decoder, at *location, value []byte) {
	key := at.key
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

// readCapability reads the arguments of one of the capabilities in the conflist.
func (r *request) readCapability(d *decoder, at *location, value []byte) {
	switch at.key {
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

// readArgs reads args.cni. The rest of args belongs to other plugins.
func (r *request) readArgs(d *decoder, at *location, value []byte) {
	d.object(at, value, func(at *location, value []byte) {
		if at.key != "cni" {
			return
		}
		d.object(at, value, func(at *location, value []byte) {
			switch at.key {
			case "ips":
				r.argIPs = d.containerAddresses(at, value)
			case "mac":
				r.argMAC = d.mac(at, d.str(at, value))
			}
		})
	})
}

// lowerKey returns the key in lower case: containerd writes HostPort and CRI-O hostPort.
// Other plugins accept both, because encoding/json ignores the case.
func lowerKey(at *location) string { return strings.ToLower(at.key) }

// readPort reads a host port. It ignores a duplicate.
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
			p.HostIP = d.optionalAddress(at, value)
		}
	})
	switch p.Protocol {
	case "tcp", "udp", "sctp":
	case "":
		p.Protocol = "tcp"
	default:
		d.fail(at, CodeInvalidConfig, "protocol %s is unknown: write tcp, udp or sctp", quoteShort(p.Protocol))
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
			d.fail(at, CodeInvalidConfig, "host port %d/%s is already mapped to container port %d, not %d: remove one of them",
				p.HostPort, p.Protocol, other.ContainerPort, p.ContainerPort)
		}
		return
	}
	r.ports = append(r.ports, p)
}

func (r *request) readBandwidth(d *decoder, at *location, value []byte) {
	var b Bandwidth
	fields := map[string]*uint64{
		"ingressrate": &b.IngressRate, "ingressburst": &b.IngressBurst, "egressrate": &b.EgressRate, "egressburst": &b.EgressBurst,
	}
	d.object(at, value, func(at *location, value []byte) {
		if into := fields[lowerKey(at)]; into != nil {
			*into = d.number(at, value, 1<<64-1)
		}
	})
	if b.IngressRate == 0 && b.IngressBurst != 0 || b.EgressRate == 0 && b.EgressBurst != 0 {
		d.fail(at, CodeInvalidConfig, "a burst without a rate: write both or neither")
		return
	}
	r.bandwidth = b
}

// containerAddresses returns the requested addresses. It ignores their prefix lengths,
// because the range determines that.
func (d *decoder) containerAddresses(at *location, value []byte) (ips []netip.Addr) {
	d.array(at, value, maxIPs, func(at *location, value []byte) {
		if a := d.containerAddress(at, d.str(at, value)); a.IsValid() {
			ips = append(ips, a)
		}
	})
	return ips
}

// containerAddress returns an address that a container can have. text may have a prefix
// length.
func (d *decoder) containerAddress(at *location, text string) netip.Addr {
	bare, _, _ := strings.Cut(text, "/")
	if _, err := netip.ParsePrefix(text); err != nil && bare != text {
		d.fail(at, CodeInvalidConfig, `%s is not an address: write one such as "10.42.0.7" or "10.42.0.7/24"`, quoteShort(text))
		return netip.Addr{}
	}
	a := d.parseAddress(at, bare)
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
		d.fail(at, CodeInvalidConfig, "%v is not usable for a container: write an address of a range", a)
		return netip.Addr{}
	}
	return a
}

// readAttachments reads the valid attachments of GC. An invalid element is an error,
// because GC would collect its attachment. libcni writes null for an empty list.
func (r *request) readAttachments(d *decoder, at *location, value []byte) {
	r.valid, r.hasValid = nil, true
	if isNull(value) {
		return
	}
	d.array(at, value, maxAttachments, func(at *location, value []byte) {
		var id ID
		d.object(at, value, func(at *location, value []byte) {
			switch at.key {
			case "containerID":
				id.ContainerID = d.str(at, value)
			case "ifname":
				id.Interface = d.str(at, value)
			}
		})
		if !isName(id.ContainerID) || !isInterface(id.Interface) {
			d.fail(at, CodeInvalidConfig, "containerID %s and ifname %s are not an attachment: write the values of ADD",
				quoteShort(id.ContainerID), quoteShort(id.Interface))
		}
		r.valid = append(r.valid, id)
	})
}
