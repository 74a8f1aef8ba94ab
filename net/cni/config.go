package cni

import (
	"net/netip"
	"path"
)

// Type is the plugin's name in a configuration: that of its file.
const Type = "tinylet-cni"

// What a network has unless its configuration says otherwise.
const (
	DefaultBridge   = "tinylet0"
	DefaultStateDir = "/run/tinylet/cni" // a restart of the machine takes the pods with it
)

const (
	maxRanges = 8
	maxDirect = 1024

	maxReserved = 64
	maxPort     = 65535
	minMTU      = 68 // RFC 791
	maxMTU      = 65535
	maxPath     = 4095 // PATH_MAX, without the zero byte
	maxRefuse   = 512
)

// Config is the configuration of a network, without what is of one attachment.
// Default gives one to start from.
type Config struct {
	// CNIVersion is the version to answer in.
	CNIVersion string
	// Name is the network's: letters, digits and ._- only.
	Name string
	// Type is the plugin's file.
	Type string
	// DisableCheck has CHECK succeed.
	DisableCheck bool
	// Bridge is the interface of the host that the containers are attached to.
	Bridge string
	// MTU is that of the containers' interfaces in bytes, 0 for that of the
	// uplink.
	MTU int
	// Ranges are where addresses come from: there is one at least, and no two
	// overlap.
	Ranges []Range
	// Kept are networks that containers still have addresses of, and that give no
	// more.
	Kept []Range
	// Refuse, unless it is "", is why no container is attached: ADD says it.
	Refuse string
	// Masquerade gives the containers the host's address outside of the network.
	Masquerade bool
	// Direct are networks that are spoken to without Masquerade.
	Direct []netip.Prefix
	// Hairpin lets a container reach itself through a port of the host.
	Hairpin bool
	// Promiscuous has the bridge take all packets, in place of Hairpin.
	Promiscuous bool
	// Reserved are ports of TCP of the host that no container has.
	Reserved []uint16
	// StateDir is the folder for what has to be remembered, an absolute path.
	StateDir string
}

// Range is a network that addresses are taken from.
type Range struct {
	// Subnet is the network's address, which has room for two hosts or more.
	Subnet netip.Prefix
	// Gateway is the bridge's address in it; the zero Addr leaves it to the
	// Network.
	Gateway netip.Addr
}

// Default is a configuration with all that need not be said: there is no name
// and no range in it.
func Default() Config {
	return Config{Type: Type, Bridge: DefaultBridge, Hairpin: true, StateDir: DefaultStateDir}
}

// readField reads one of the fields of a plugin's configuration.
func (c *Config) readField(d *decoder, at *location, value []byte) {
	switch string(at.key) {
	case "cniVersion":
		c.CNIVersion = d.str(at, value)
	case "name":
		c.readName(d, at, value)
	case "type":
		c.Type = d.str(at, value)
	case "disableCheck":
		c.DisableCheck = d.boolean(at, value, c.DisableCheck)
	case "bridge":
		if c.Bridge = d.str(at, value); !isInterface(c.Bridge) {
			d.fail(at, CodeInvalidConfig, "%s is no name of an interface: %s", quoteShort(c.Bridge), interfaceRule)
			c.Bridge = DefaultBridge
		}
	case "mtu":
		c.readMTU(d, at, value)
	case "ranges":
		c.Ranges = nil
		d.array(at, value, maxRanges, func(at *location, value []byte) { c.addRange(d, at, value) })
	case "kept":
		c.Kept = nil
		d.array(at, value, maxRanges, func(at *location, value []byte) { c.addKept(d, at, value) })
	case "refuse":
		if c.Refuse = d.str(at, value); !noControlChars(c.Refuse) || len(c.Refuse) > maxRefuse {
			d.fail(at, CodeInvalidConfig, "%s is no reason: write a line of at most %d bytes", quoteShort(c.Refuse), maxRefuse)
			c.Refuse = ""
		}
	case "masquerade":
		c.Masquerade = d.boolean(at, value, c.Masquerade)
	case "direct":
		c.Direct = nil
		d.array(at, value, maxDirect, func(at *location, value []byte) {
			if p := d.subnet(at, value); p.IsValid() {
				c.Direct = append(c.Direct, p)
			}
		})
	case "reserved":
		c.Reserved = nil
		d.array(at, value, maxReserved, func(at *location, value []byte) {
			switch port := d.number(at, value, maxPort); {
			case d.err != nil:
			case port == 0:
				d.fail(at, CodeInvalidConfig, "0 is no port: write 1 to %d", maxPort)
			default:
				c.Reserved = append(c.Reserved, uint16(port))
			}
		})
	case "hairpin":
		c.Hairpin = d.boolean(at, value, c.Hairpin)
	case "promiscuous":
		c.Promiscuous = d.boolean(at, value, c.Promiscuous)
	case "stateDir":
		c.readStateDir(d, at, value)
	}
}

func (c *Config) readName(d *decoder, at *location, value []byte) {
	if c.Name = d.str(at, value); !isName(c.Name) {
		d.fail(at, CodeInvalidConfig, "%s is no name of a network: %s", quoteShort(c.Name), nameRule)
		c.Name = ""
	}
}

func (c *Config) readMTU(d *decoder, at *location, value []byte) {
	n := d.number(at, value, maxMTU)
	if n != 0 && n < minMTU {
		d.fail(at, CodeInvalidConfig, "%d is too small: write %d to %d, or 0 for that of the uplink", n, minMTU, maxMTU)
		n = 0
	}
	c.MTU = int(n)
}

func (c *Config) readStateDir(d *decoder, at *location, value []byte) {
	dir := d.str(at, value)
	if len(dir) > maxPath || !path.IsAbs(dir) || path.Clean(dir) != dir || !noControlChars(dir) {
		d.fail(at, CodeInvalidConfig, `%s is no absolute path: write one like "%s"`, quoteShort(dir), DefaultStateDir)
		return
	}
	c.StateDir = dir
}

// noControlChars is whether a text has no zero byte or other control character.
func noControlChars(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

func (c *Config) addRange(d *decoder, at *location, value []byte) {
	if r := readRange(d, at, value); checkRange(d, at, r, c.Ranges) {
		c.Ranges = append(c.Ranges, r)
	}
}

// addKept reads one that may overlap those that give addresses: a network can
// become larger.
func (c *Config) addKept(d *decoder, at *location, value []byte) {
	if r := readRange(d, at, value); checkRange(d, at, r, c.Kept) {
		c.Kept = append(c.Kept, r)
	}
}

func readRange(d *decoder, at *location, value []byte) (r Range) {
	d.object(at, value, func(at *location, value []byte) {
		switch string(at.key) {
		case "subnet":
			r.Subnet = d.subnet(at, value)
		case "gateway":
			r.Gateway = d.address(at, value)
		}
	})
	return r
}

// checkRange is whether a range may stand beside those before it.
func checkRange(d *decoder, at *location, r Range, before []Range) bool {
	s := r.Subnet
	switch {
	case !s.IsValid():
		d.fail(at, CodeInvalidConfig, `there is no subnet: write {"subnet": "10.42.0.0/24"}`)
		return false
	case s.Addr().BitLen()-s.Bits() < 2:
		d.fail(at, CodeInvalidConfig, "subnet %v has no room for a gateway and a pod: write a prefix of %d bits at most", s, s.Addr().BitLen()-2)
		return false
	case s.Bits() == 0 || s.Addr().IsMulticast() || s.Addr().IsLoopback() || s.Addr().IsLinkLocalUnicast():
		d.fail(at, CodeInvalidConfig, "subnet %v has no addresses for pods: write a private network like 10.42.0.0/24", s)
		return false
	case r.Gateway.IsValid() && (!s.Contains(r.Gateway) || r.Gateway == s.Addr()):
		d.fail(at, CodeInvalidConfig, "gateway %v is no host in subnet %v: write an address from %v on", r.Gateway, s, s.Addr().Next())
		return false
	}
	for _, other := range before {
		if other.Subnet.Overlaps(s) {
			d.fail(at, CodeInvalidConfig, "subnet %v overlaps subnet %v before it: write networks that have no address in common", s, other.Subnet)
			return false
		}
	}
	return true
}

// checkRequired sees to what has to be there for a verb.
func (c *Config) checkRequired(d *decoder, v verb) {
	switch {
	case c.Name == "":
		d.fail(nil, CodeInvalidConfig, `name: is missing: write the name of the network, like "name": "tinylet"`)
	case len(c.Ranges) == 0 && c.Refuse == "" && v != gc:
		d.fail(nil, CodeInvalidConfig, `ranges: are missing: write the networks that pods get addresses from, like "ranges": [{"subnet": "10.42.0.0/24"}]`)
	}
}
