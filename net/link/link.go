package link

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Link is a network interface as the kernel has it.
type Link struct {
	Index int
	Name  string
	Kind  string // bridge, veth, ...; "" for a device
	Alias string
	MTU   int              // bytes
	MAC   net.HardwareAddr // nil if it has none
	// Master is the index of the bridge, 0 if it is no port.
	Master int
	// Peer is the index of the other end (IFLA_LINK), 0 if it has none. PeerNS
	// is the number by which this namespace knows that of the peer, -1 if it is
	// this one, or has none.
	Peer, PeerNS int
	// Up is what is wanted of the link, Running whether it can carry packets.
	Up, Running bool
	Loopback    bool
	Promiscuous bool // as an administrator wants it
	Hairpin     bool // the bridge sends back through the port it came from
}

// extSkipStats leaves the counters out of an answer (RTEXT_FILTER_SKIP_STATS
// in linux/rtnetlink.h), which are half of it.
const extSkipStats = 1 << 3

// header appends struct ifinfomsg.
func header(b *netlink.Builder, index int, flags, change uint32) {
	var m [unix.SizeofIfInfomsg]byte
	order.PutUint32(m[4:], uint32(index))
	order.PutUint32(m[8:], flags)
	order.PutUint32(m[12:], change)
	b.Raw(m[:])
}

// Link reads the link of a name; ErrNotFound if there is none.
func (h *Handle) Link(name string) (Link, error) {
	if err := ValidName(name); err != nil {
		return Link{}, err
	}
	h.b.Reset()
	h.b.Begin(unix.RTM_GETLINK, 0)
	header(&h.b, 0, 0, 0)
	h.b.String(unix.IFLA_IFNAME, name)
	l, err := h.one()
	if err != nil {
		return Link{}, fmt.Errorf("read link %s: %w", name, err)
	}
	return l, nil
}

// LinkByIndex reads the link of an index; ErrNotFound if there is none.
func (h *Handle) LinkByIndex(index int) (Link, error) {
	if index <= 0 {
		return Link{}, fmt.Errorf("read link %d: %w", index, ErrNotFound)
	}
	h.b.Reset()
	h.b.Begin(unix.RTM_GETLINK, 0)
	header(&h.b, index, 0, 0)
	l, err := h.one()
	if err != nil {
		return Link{}, fmt.Errorf("read link %d: %w", index, err)
	}
	return l, nil
}

func (h *Handle) one() (found Link, err error) {
	h.b.Uint32(unix.IFLA_EXT_MASK, extSkipStats)
	err = h.list(unix.RTM_NEWLINK, nil, func(p []byte) {
		if l, ok := parseLink(p); ok {
			found = l
		}
	})
	if err == nil && found.Index == 0 {
		err = ErrNotFound
	}
	return found, err
}

// Links reads all links, in no order.
func (h *Handle) Links() ([]Link, error) {
	all, err := h.links(0)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return all, nil
}

// Ports reads the ports of the bridge that has this index, in no order. A
// bridge that is gone has none.
func (h *Handle) Ports(bridge int) ([]Link, error) {
	if bridge <= 0 {
		return nil, fmt.Errorf("list the ports of link %d: %w", bridge, ErrNotFound)
	}
	all, err := h.links(bridge)
	if err != nil {
		return nil, fmt.Errorf("list the ports of link %d: %w", bridge, err)
	}
	return all, nil
}

// links reads the links of a master, 0 for all. Where the kernel does not heed
// that, more are read than are taken.
func (h *Handle) links(master int) (all []Link, err error) {
	h.b.Reset()
	h.b.Begin(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	header(&h.b, 0, 0, 0)
	h.b.Uint32(unix.IFLA_EXT_MASK, extSkipStats)
	if master != 0 {
		h.b.Uint32(unix.IFLA_MASTER, uint32(master))
	}
	err = h.list(unix.RTM_NEWLINK, func() { all = all[:0] }, func(p []byte) {
		if l, ok := parseLink(p); ok && (master == 0 || l.Master == master) {
			all = append(all, l)
		}
	})
	return all, err
}

// parseLink reads the payload of RTM_NEWLINK or RTM_DELLINK. Messages of a
// bridge about its ports (AF_BRIDGE) are none of a link.
func parseLink(p []byte) (Link, bool) {
	if len(p) < unix.SizeofIfInfomsg || p[0] != unix.AF_UNSPEC {
		return Link{}, false
	}
	flags := order.Uint32(p[8:])
	l := Link{
		Index:       int(int32(order.Uint32(p[4:]))),
		PeerNS:      -1,
		Up:          flags&unix.IFF_UP != 0,
		Running:     flags&unix.IFF_RUNNING != 0,
		Loopback:    flags&unix.IFF_LOOPBACK != 0,
		Promiscuous: flags&unix.IFF_PROMISC != 0,
	}
	for kind, value := range netlink.Attributes(p[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = netlink.Text(value)
		case unix.IFLA_IFALIAS:
			l.Alias = netlink.Text(value)
		case unix.IFLA_MTU:
			l.MTU = int(int32(netlink.Number32(value)))
		case unix.IFLA_ADDRESS:
			l.MAC = append(net.HardwareAddr(nil), value...)
		case unix.IFLA_MASTER:
			l.Master = int(int32(netlink.Number32(value)))
		case unix.IFLA_LINK:
			l.Peer = int(int32(netlink.Number32(value)))
		case unix.IFLA_LINK_NETNSID:
			l.PeerNS = int(int32(netlink.Number32(value)))
		case unix.IFLA_LINKINFO:
			l.parseInfo(value)
		}
	}
	return l, l.Index > 0 && l.Name != ""
}

func (l *Link) parseInfo(info []byte) {
	for kind, value := range netlink.Attributes(info) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = netlink.Text(value)
		case unix.IFLA_INFO_SLAVE_DATA:
			mode := netlink.Attribute(value, unix.IFLA_BRPORT_MODE)
			l.Hairpin = len(mode) > 0 && mode[0] != 0
		}
	}
}

// DeleteLink removes the link of a name, nil if there is none. The other end
// of a veth goes with it.
func (h *Handle) DeleteLink(name string) error {
	if err := ValidName(name); err != nil {
		return err
	}
	h.b.Reset()
	h.b.Begin(unix.RTM_DELLINK, 0)
	header(&h.b, 0, 0, 0)
	h.b.String(unix.IFLA_IFNAME, name)
	if err := h.do(); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}
