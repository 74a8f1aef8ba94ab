package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrExists says that a link of that name exists. It is fs.ErrExist.
	ErrExists = fmt.Errorf("a link of that name exists: %w", fs.ErrExist)
	// ErrPeerExists says that a link of the peer's name exists in the peer's
	// namespace. It is fs.ErrExist.
	ErrPeerExists = fmt.Errorf("a link of the peer's name exists: %w", fs.ErrExist)
)

// vethPeer is VETH_INFO_PEER of linux/veth.h.
const vethPeer = 1

// modeNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const modeNone = 1

// Veth is a pair of links, of which what is sent into one comes out of the
// other.
type Veth struct {
	Name    string           // of the end in the Handle's namespace
	MTU     int              // bytes, of both ends; 0 is the kernel's
	MAC     net.HardwareAddr // nil: the kernel makes one
	Bridge  int              // the index of the bridge whose port it is, 0 for none
	Hairpin bool             // the bridge sends back what came from here
	Alias   string           // up to 255 bytes, for whoever looks at the links
	Peer    Peer
}

// Peer is the other end of a Veth.
type Peer struct {
	Name string
	NS   *os.File         // nil is the Handle's namespace
	MAC  net.HardwareAddr // nil: the kernel makes one
}

// CreateVeth makes the pair. Its end here is up, and has no IPv6 address of
// its own, so that nothing but what comes through is sent from it; the peer is
// down. The errors are ErrExists and ErrPeerExists, beside the kernel's;
// nothing is left then. A call that is killed may leave the pair, which
// DeleteLink takes away.
func (h *Handle) CreateVeth(v Veth) error {
	if err := v.check(); err != nil {
		return err
	}
	return h.createVeth(v)
}

func (h *Handle) createVeth(v Veth) error {
	h.b.Reset()
	h.create(v)
	if err := h.do(); err != nil {
		return fmt.Errorf("create veth %s: %w", v.Name, h.whichExists(v, err))
	}
	// Only now is the name known to be that of the new pair: the kernel goes on
	// with what stands behind a message that fails, and would change a link
	// that has been there.
	if err := h.equip(v); err != nil {
		return errors.Join(fmt.Errorf("set up veth %s: %w", v.Name, err), h.DeleteLink(v.Name))
	}
	return nil
}

func (v Veth) check() error {
	if err := ValidName(v.Name); err != nil {
		return err
	}
	if err := ValidName(v.Peer.Name); err != nil {
		return fmt.Errorf("create veth %s: peer: %w", v.Name, err)
	}
	if len(v.Alias) > 255 {
		return fmt.Errorf("create veth %s: its alias has %d bytes where 255 are allowed", v.Name, len(v.Alias))
	}
	if v.Hairpin && v.Bridge == 0 {
		return fmt.Errorf("create veth %s: only a port of a bridge can have hairpin", v.Name)
	}
	return nil
}

func (h *Handle) create(v Veth) {
	h.b.Begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	header(&h.b, 0, 0, 0)
	h.end(v.Name, v.MTU, v.MAC)
	if v.Bridge != 0 {
		h.b.Uint32(unix.IFLA_MASTER, uint32(v.Bridge))
	}
	info := h.b.Nest(unix.IFLA_LINKINFO)
	h.b.String(unix.IFLA_INFO_KIND, "veth")
	data := h.b.Nest(unix.IFLA_INFO_DATA)
	peer := h.b.Nest(vethPeer)
	header(&h.b, 0, 0, 0)
	h.end(v.Peer.Name, v.MTU, v.Peer.MAC)
	if v.Peer.NS != nil {
		h.b.Uint32(unix.IFLA_NET_NS_FD, uint32(v.Peer.NS.Fd()))
	}
	h.b.End(peer)
	h.b.End(data)
	h.b.End(info)
}

// end appends what either end is made with.
func (h *Handle) end(name string, mtu int, mac net.HardwareAddr) {
	h.b.String(unix.IFLA_IFNAME, name)
	if mtu != 0 {
		h.b.Uint32(unix.IFLA_MTU, uint32(mtu))
	}
	if mac != nil {
		h.b.Bytes(unix.IFLA_ADDRESS, mac)
	}
}

// whichExists tells a name that is taken here from that of the peer.
func (h *Handle) whichExists(v Veth, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, found := h.Link(v.Name); found == nil {
		return ErrExists
	}
	return fmt.Errorf("peer %s: %w", v.Peer.Name, ErrPeerExists)
}

// equip gives the end here what the kernel does not take when it is made.
func (h *Handle) equip(v Veth) error {
	h.b.Reset()
	h.equipment(v)
	err := h.do()
	if errors.Is(err, unix.EAFNOSUPPORT) && !h.noIPv6 {
		h.noIPv6 = true
		h.b.Reset()
		h.equipment(v)
		err = h.do()
	}
	return err
}

func (h *Handle) equipment(v Veth) {
	h.b.Begin(unix.RTM_NEWLINK, 0)
	header(&h.b, 0, unix.IFF_UP, unix.IFF_UP)
	h.b.String(unix.IFLA_IFNAME, v.Name)
	if v.Alias != "" {
		h.b.Bytes(unix.IFLA_IFALIAS, []byte(v.Alias))
	}
	if v.Hairpin {
		info := h.b.Nest(unix.IFLA_LINKINFO)
		h.b.String(unix.IFLA_INFO_SLAVE_KIND, kindBridge)
		data := h.b.Nest(unix.IFLA_INFO_SLAVE_DATA)
		h.b.Uint8(unix.IFLA_BRPORT_MODE, 1)
		h.b.End(data)
		h.b.End(info)
	}
	if !h.noIPv6 {
		spec := h.b.Nest(unix.IFLA_AF_SPEC)
		inet6 := h.b.Nest(unix.AF_INET6)
		h.b.Uint8(unix.IFLA_INET6_ADDR_GEN_MODE, modeNone)
		h.b.End(inet6)
		h.b.End(spec)
	}
}
