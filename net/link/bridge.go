package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// kindBridge is the kernel's name of the kind.
const kindBridge = "bridge"

// ErrOtherKind says that a link has the name that is wanted, but is something
// else.
var ErrOtherKind = errors.New("the link is of another kind")

// Bridge is what a bridge has to be like.
type Bridge struct {
	Name string
	MTU  int // bytes; 0 leaves it
	// MAC is the address, without which one is made of the name (StableMAC):
	// the kernel's own would change with the ports, and the neighbours would
	// look for the old one.
	MAC net.HardwareAddr
	// Addresses are all that it has of global scope: others are removed.
	Addresses   []netip.Prefix
	Promiscuous bool
}

// settleTries is how often a bridge is looked at and changed until nothing is
// left to change. To remove an address may remove others: those of the same
// prefix, behind an IPv4 one (promote_secondaries).
const settleTries = 4

// EnsureBridge makes the bridge, brings it up and gives it its addresses, or
// changes the one that is there. A link of that name that is no bridge gives
// ErrOtherKind.
func (h *Handle) EnsureBridge(want Bridge) (Link, error) {
	if err := want.complete(); err != nil {
		return Link{}, err
	}
	for range settleTries {
		l, settled, err := h.settle(want)
		if err != nil {
			return Link{}, fmt.Errorf("set up bridge %s: %w", want.Name, err)
		}
		if settled {
			return l, nil
		}
	}
	return Link{}, fmt.Errorf("set up bridge %s: something else keeps changing it", want.Name)
}

// CreateBridge makes the bridge, up and without its addresses, where there is
// none, and leaves one that is there as it is. It is for whoever has more to do
// before EnsureBridge: the addresses then tell that it was done.
func (h *Handle) CreateBridge(want Bridge) error {
	if err := want.complete(); err != nil {
		return err
	}
	err := h.createBridge(want)
	if errors.Is(err, fs.ErrExist) {
		var l Link
		if l, err = h.Link(want.Name); err == nil {
			err = l.isBridge()
		}
	}
	if err != nil {
		return fmt.Errorf("make bridge %s: %w", want.Name, err)
	}
	return nil
}

// complete checks what is wanted, and fills in what is left to this package.
func (b *Bridge) complete() error {
	if err := ValidName(b.Name); err != nil {
		return err
	}
	if b.MAC == nil {
		b.MAC = StableMAC(b.Name)
	}
	for _, p := range b.Addresses {
		if err := validAddress(p); err != nil {
			return fmt.Errorf("set up bridge %s: %w", b.Name, err)
		}
	}
	return nil
}

// settle looks at the bridge and changes what has to change; settled says that
// nothing had to.
func (h *Handle) settle(want Bridge) (l Link, settled bool, err error) {
	l, err = h.Link(want.Name)
	if errors.Is(err, ErrNotFound) {
		err = h.createBridge(want)
		if errors.Is(err, fs.ErrExist) {
			err = nil // it was made just now: look again
		}
		return l, false, err
	}
	if err != nil {
		return l, false, err
	}
	if err := l.isBridge(); err != nil {
		return l, false, err
	}
	have, err := h.addresses(l.Index)
	if err != nil {
		return l, false, err
	}
	h.b.Reset()
	h.changeBridge(want, l)
	h.changeAddresses(want.Addresses, have, l.Index)
	if h.b.Len() == 0 {
		return l, true, nil
	}
	return l, false, h.changed()
}

func (l Link) isBridge() error {
	if l.Kind != kindBridge {
		return fmt.Errorf("%w, %q, and not removed for that: remove it or choose another name", ErrOtherKind, l.Kind)
	}
	return nil
}

// changed sends what was built. An address that goes with another is gone
// already, and that is what was wanted.
func (h *Handle) changed() error {
	if err := h.do(); !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}

func (h *Handle) createBridge(want Bridge) error {
	h.b.Reset()
	h.b.Begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	header(&h.b, 0, want.flags(), want.flags())
	h.b.String(unix.IFLA_IFNAME, want.Name)
	if want.MTU != 0 {
		h.b.Uint32(unix.IFLA_MTU, uint32(want.MTU))
	}
	h.b.Bytes(unix.IFLA_ADDRESS, want.MAC)
	info := h.b.Nest(unix.IFLA_LINKINFO)
	h.b.String(unix.IFLA_INFO_KIND, kindBridge)
	h.b.End(info)
	return h.do()
}

func (b Bridge) flags() uint32 {
	if b.Promiscuous {
		return unix.IFF_UP | unix.IFF_PROMISC
	}
	return unix.IFF_UP
}

// changeBridge builds the message that makes a bridge as it should be, if any.
func (h *Handle) changeBridge(want Bridge, l Link) {
	mtu, mac := want.MTU != 0 && want.MTU != l.MTU, !bytes.Equal(want.MAC, l.MAC)
	if l.Up && l.Promiscuous == want.Promiscuous && !mtu && !mac {
		return
	}
	h.b.Begin(unix.RTM_NEWLINK, 0)
	header(&h.b, l.Index, want.flags(), unix.IFF_UP|unix.IFF_PROMISC)
	if mtu {
		h.b.Uint32(unix.IFLA_MTU, uint32(want.MTU))
	}
	if mac {
		h.b.Bytes(unix.IFLA_ADDRESS, want.MAC)
	}
}

// changeAddresses builds the messages that remove what is not wanted, and then
// add what is missing: an IPv6 address cannot be there with two lengths.
func (h *Handle) changeAddresses(want []netip.Prefix, have []Address, index int) {
	for _, a := range have {
		if a.Global() && !slices.Contains(want, a.Prefix) {
			deleteAddress(&h.b, index, a.Prefix)
		}
	}
	for _, p := range want {
		if !slices.ContainsFunc(have, func(a Address) bool { return a.Prefix == p }) {
			addAddress(&h.b, index, p, unix.NLM_F_REPLACE)
		}
	}
}
