package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	// ErrExists means that a link of that name exists. It wraps fs.ErrExist.
	ErrExists = fmt.Errorf("a link of that name exists: %w", fs.ErrExist)
	// ErrPeerExists means that a link of the peer's name exists in the peer's
	// namespace. It wraps fs.ErrExist.
	ErrPeerExists = fmt.Errorf("a link of the peer's name exists: %w", fs.ErrExist)
)

// maxAlias is the maximum length of an alias in bytes (IFALIASZ - 1 in linux/if.h).
const maxAlias = 255

// addrGenNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenNone = 1

// Veth is a pair of links: frames sent into one come out of the other.
type Veth struct {
	Name    string           // of the end in the Handle's namespace
	MTU     int              // bytes, of both ends; 0 is the kernel's default
	MAC     net.HardwareAddr // nil: the kernel's choice
	Bridge  int              // the index of the bridge whose port it is, 0 for none
	Hairpin bool             // the bridge sends back what came from this port
	Alias   string           // up to 255 bytes
	Peer    Peer
}

// Peer is the other end of a Veth.
type Peer struct {
	Name string
	NS   *os.File         // nil is the Handle's namespace
	MAC  net.HardwareAddr // nil: the kernel's choice
}

// CreateVeth creates the pair. The end in this namespace is up and gets no IPv6
// address of its own, so that it sends nothing but forwarded packets. The peer is
// down. The errors are ErrExists and ErrPeerExists, besides the kernel's. After an
// error nothing is left, unless the deletion of the pair fails too. A call that is killed
// may leave the pair; DeleteLink removes it.
func (h *Handle) CreateVeth(v Veth) error {
	if err := v.check(); err != nil {
		return err
	}
	return h.createVeth(v)
}

func (h *Handle) createVeth(v Veth) error {
	pair := v.pair()
	if err := translate(h.rt.LinkAdd(pair)); err != nil {
		return fmt.Errorf("create veth %s: %w", v.Name, h.whichExists(v, err))
	}
	if err := translate(h.attachVeth(v, pair)); err != nil {
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
	switch {
	case len(v.Alias) > maxAlias:
		return fmt.Errorf("create veth %s: alias has %d bytes, want at most %d", v.Name, len(v.Alias), maxAlias)
	case v.MTU < 0:
		return fmt.Errorf("create veth %s: MTU %d is negative", v.Name, v.MTU)
	case v.Hairpin && v.Bridge == 0:
		return fmt.Errorf("create veth %s: only a bridge port can have hairpin mode", v.Name)
	}
	return nil
}

// pair returns the pair as the library creates it, without the bridge. The library would
// set the bridge by a second request, and its error does not show that the pair exists.
func (v Veth) pair() *netlink.Veth {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = v.Name, v.MTU, v.MAC
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr = v.Peer.Name, v.Peer.MAC
	if v.Peer.NS != nil {
		pair.PeerNamespace = netlink.NsFd(v.Peer.NS.Fd())
	}
	return pair
}

// whichExists returns ErrExists or ErrPeerExists for fs.ErrExist.
func (h *Handle) whichExists(v Veth, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, found := h.Link(v.Name); found == nil {
		return ErrExists
	}
	return fmt.Errorf("peer %s: %w", v.Peer.Name, ErrPeerExists)
}

// attachVeth sets what a link cannot be created with, and brings the end up last: the
// kernel assigns an IPv6 link-local address when the link comes up. A kernel without IPv6
// has no address generation mode.
func (h *Handle) attachVeth(v Veth, end netlink.Link) error {
	if v.Bridge != 0 {
		if err := h.rt.LinkSetMasterByIndex(end, v.Bridge); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
	}
	if v.Hairpin {
		if err := h.rt.LinkSetHairpin(end, true); err != nil {
			return fmt.Errorf("hairpin mode: %w", err)
		}
	}
	if v.Alias != "" {
		if err := h.rt.LinkSetAlias(end, v.Alias); err != nil {
			return fmt.Errorf("alias: %w", err)
		}
	}
	if err := h.rt.LinkSetIP6AddrGenMode(end, addrGenNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("IPv6 address generation: %w", err)
	}
	return h.rt.LinkSetUp(end)
}
