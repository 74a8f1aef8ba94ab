package cni

import (
	"net/netip"
	"path"
	"strings"

	"github.com/tinylet/tinylet/net/ipam"
)

// Type is the plugin's type in a configuration: the name of its file.
const Type = "tinylet-cni"

// Defaults of a network configuration.
const (
	DefaultBridge   = "tinylet0"
	DefaultStateDir = "/run/tinylet/cni" // pods do not survive a reboot either
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

// Config is the configuration of a network, without the fields of a single attachment.
// Default returns one with the defaults.
type Config struct {
	// CNIVersion is the version of CNI for the result.
	CNIVersion string
	// Name is the name of the network: letters, digits and ._- only.
	Name string
	// Type is the name of the plugin's file.
	Type string
	// DisableCheck makes CHECK succeed without a check.
	DisableCheck bool
	// Bridge is the host's bridge to which the containers are attached.
	Bridge string
	// MTU is the MTU of the containers' interfaces in bytes; 0 is the MTU of the uplink.
	MTU int
	// Ranges are the ranges from which addresses are allocated. They do not overlap. ADD,
	// CHECK and STATUS require at least one, unless Refuse is set.
	Ranges []ipam.Range
	// Kept are ranges of which containers still have addresses, and from which no more
	// addresses are allocated.
	Kept []ipam.Range
	// Refuse, if not "", makes ADD fail with this reason.
	Refuse string
	// Masquerade replaces the source address of what containers send beyond the network by
	// the host's address.
	Masquerade bool
	// Direct are destinations without masquerading.
	Direct []netip.Prefix
	// Hairpin lets a container reach itself through a host port.
	Hairpin bool
	// Promiscuous has the same effect with the bridge's promiscuous mode.
	Promiscuous bool
	// Reserved are TCP ports of the host that no container gets.
	Reserved []uint16
	// StateDir is the absolute path of the directory for the leases.
	StateDir string
}

// Default returns the default configuration. It has no name and no range.
func Default() Config {
	return Config{Type: Type, Bridge: DefaultBridge, Hairpin: true, StateDir: DefaultStateDir}
}

// readField reads a field of the plugin's configuration. It ignores unknown fields.
func (c *Config) readField(d *decoder, at *location, value []byte) {
	switch at.key {
	case "cniVersion":
		c.CNIVersion = d.str(at, value)
	case "name":
		if c.Name = d.str(at, value); !isName(c.Name) {
			d.fail(at, CodeInvalidConfig, "%s is not a network name: %s", quoteShort(c.Name), nameRule)
			c.Name = ""
		}
	case "type":
		c.Type = d.str(at, value)
	case "disableCheck":
		c.DisableCheck = d.boolean(at, value, c.DisableCheck)
	case "bridge":
		if c.Bridge = d.str(at, value); !isInterface(c.Bridge) {
			d.fail(at, CodeInvalidConfig, "%s is not an interface name: %s", quoteShort(c.Bridge), interfaceRule)
			c.Bridge = DefaultBridge
		}
	case "mtu":
		if c.MTU = int(d.number(at, value, maxMTU)); c.MTU != 0 && c.MTU < minMTU {
			d.fail(at, CodeInvalidConfig, "%d is too small: write %d to %d, or 0 for the MTU of the uplink", c.MTU, minMTU, maxMTU)
			c.MTU = 0
		}
	case "ranges":
		c.Ranges = d.ranges(at, value)
	case "kept": // may overlap Ranges, because a network can become larger
		c.Kept = d.ranges(at, value)
	case "refuse":
		if c.Refuse = d.str(at, value); !noControlChars(c.Refuse) || len(c.Refuse) > maxRefuse {
			d.fail(at, CodeInvalidConfig, "%s is not a valid reason: write one line of at most %d bytes", quoteShort(c.Refuse), maxRefuse)
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
				d.fail(at, CodeInvalidConfig, "0 is not a port: write 1 to %d", maxPort)
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

func (c *Config) readStateDir(d *decoder, at *location, value []byte) {
	dir := d.str(at, value)
	if len(dir) > maxPath || !path.IsAbs(dir) || path.Clean(dir) != dir || !noControlChars(dir) {
		d.fail(at, CodeInvalidConfig, `%s is not a clean absolute path: write one such as "%s"`, quoteShort(dir), DefaultStateDir)
		return
	}
	c.StateDir = dir
}

// noControlChars reports whether a text has no zero byte or other ASCII control character.
func noControlChars(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// ranges returns the valid ranges of an array that do not overlap those before them.
func (d *decoder) ranges(at *location, value []byte) (all []ipam.Range) {
	d.array(at, value, maxRanges, func(at *location, value []byte) {
		if r := readRange(d, at, value); checkRange(d, at, r, all) {
			all = append(all, r)
		}
	})
	return all
}

func readRange(d *decoder, at *location, value []byte) (r ipam.Range) {
	d.object(at, value, func(at *location, value []byte) {
		switch at.key {
		case "subnet":
			r.Prefix = d.subnet(at, value)
		case "gateway":
			r.Gateway = d.address(at, value)
		}
	})
	return r
}

// checkRange reports whether a range is valid and does not overlap those before it.
func checkRange(d *decoder, at *location, r ipam.Range, before []ipam.Range) bool {
	s := r.Prefix
	switch {
	case !s.IsValid():
		d.fail(at, CodeInvalidConfig, `subnet is missing: write {"subnet": "10.42.0.0/24"}`)
		return false
	case s.Addr().BitLen()-s.Bits() < 2:
		d.fail(at, CodeInvalidConfig, "subnet %v is too small for a gateway and a pod: write a prefix length of at most %d", s, s.Addr().BitLen()-2)
		return false
	case s.Bits() == 0 || s.Addr().IsMulticast() || s.Addr().IsLoopback() || s.Addr().IsLinkLocalUnicast():
		d.fail(at, CodeInvalidConfig, "subnet %v is not usable for pods: write a private network such as 10.42.0.0/24", s)
		return false
	case r.Gateway.IsValid() && (!s.Contains(r.Gateway) || r.Gateway == s.Addr()):
		d.fail(at, CodeInvalidConfig, "gateway %v is not a host address of subnet %v: write an address from %v on", r.Gateway, s, s.Addr().Next())
		return false
	}
	for _, other := range before {
		if other.Prefix.Overlaps(s) {
			d.fail(at, CodeInvalidConfig, "subnet %v overlaps subnet %v: write networks without common addresses", s, other.Prefix)
			return false
		}
	}
	return true
}

// checkRequired checks that the fields exist that a verb requires.
func (c *Config) checkRequired(d *decoder, v verb) {
	switch {
	case c.Name == "":
		d.fail(nil, CodeInvalidConfig, `name: is missing: write the name of the network, such as "name": "tinylet"`)
	case len(c.Ranges) == 0 && c.Refuse == "" && v != gc:
		d.fail(nil, CodeInvalidConfig, `ranges: is missing: write the networks of the pods' addresses, such as "ranges": [{"subnet": "10.42.0.0/24"}]`)
	}
}
