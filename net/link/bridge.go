package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kindBridge is the kernel's name of this kind of link.
const kindBridge = "bridge"

// ErrOtherKind means that a link of the desired name exists, but is of another kind.
var ErrOtherKind = errors.New("the link is of another kind")

// Bridge is the desired state of a bridge. Its address is StableMAC of the name: the
// kernel's own address would change with the ports, and neighbours would have a stale one.
type Bridge struct {
	Name string
	MTU  int // bytes; 0 leaves it
	// Addresses are all addresses of global scope. Others are removed.
	Addresses   []netip.Prefix
	Promiscuous bool
}

// bridgeAttempts is how often a bridge is read and changed until nothing differs.
// Removing an IPv4 address may remove others of the same network
// (promote_secondaries).
const bridgeAttempts = 4

// EnsureBridge creates the bridge, brings it up and sets its addresses, or changes
// the existing one. ErrOtherKind if a link of that name is not a bridge.
func (h *Handle) EnsureBridge(want Bridge) (Link, error) {
	if err := want.check(); err != nil {
		return Link{}, err
	}
	for range bridgeAttempts {
		l, unchanged, err := h.reconcileBridge(want)
		if err != nil {
			return Link{}, fmt.Errorf("set up bridge %s: %w", want.Name, err)
		}
		if unchanged {
			return l, nil
		}
	}
	return Link{}, fmt.Errorf("set up bridge %s: something else keeps changing it", want.Name)
}

// CreateBridge creates the bridge, up and without its addresses, if it does not
// exist. It does not change an existing one. Callers with steps to take before
// EnsureBridge use it: the addresses then mean that these steps are done.
func (h *Handle) CreateBridge(want Bridge) error {
	if err := want.check(); err != nil {
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
		return fmt.Errorf("create bridge %s: %w", want.Name, err)
	}
	return nil
}

func (b Bridge) check() error {
	if err := ValidName(b.Name); err != nil {
		return err
	}
	if b.MTU < 0 {
		return fmt.Errorf("set up bridge %s: MTU %d is negative", b.Name, b.MTU)
	}
	for _, p := range b.Addresses {
		if err := validAddress(p); err != nil {
			return fmt.Errorf("set up bridge %s: %w", b.Name, err)
		}
	}
	return nil
}

// reconcileBridge reads the bridge and changes what differs. unchanged reports that
// nothing differed.
func (h *Handle) reconcileBridge(want Bridge) (l Link, unchanged bool, err error) {
	l, err = h.Link(want.Name)
	if errors.Is(err, ErrNotFound) {
		err = h.createBridge(want)
		if errors.Is(err, fs.ErrExist) {
			err = nil // created concurrently: read it
		}
		return l, false, err
	}
	if err != nil {
		return l, false, err
	}
	if err := l.isBridge(); err != nil {
		return l, false, err
	}
	have, err := h.listAddresses(l.Index)
	if err != nil {
		return l, false, err
	}
	extra, missing := compareAddresses(want.Addresses, have)
	if want.matches(l) && len(extra) == 0 && len(missing) == 0 {
		return l, true, nil
	}
	if err := translate(h.changeBridge(want, l)); err != nil {
		return l, false, err
	}
	return l, false, translate(h.changeAddresses(l.Index, extra, missing))
}

func (l Link) isBridge() error {
	if l.Kind != kindBridge {
		return fmt.Errorf("%w (%q) and is not removed: remove it or choose another name", ErrOtherKind, l.Kind)
	}
	return nil
}

func (h *Handle) createBridge(want Bridge) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Flags = want.Name, want.MTU, StableMAC(want.Name), net.FlagUp
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	err := h.rt.LinkAdd(bridge)
	if err == nil && want.Promiscuous {
		err = h.rt.SetPromiscOn(bridge)
	}
	return translate(err)
}

// matches reports whether a link is as desired, without its addresses.
func (b Bridge) matches(l Link) bool {
	return l.Up && l.Promiscuous == b.Promiscuous && (b.MTU == 0 || b.MTU == l.MTU) && bytes.Equal(StableMAC(b.Name), l.MAC)
}

func (h *Handle) changeBridge(want Bridge, l Link) error {
	var errs []error
	link := withIndex(l.Index)
	if mac := StableMAC(want.Name); !bytes.Equal(mac, l.MAC) {
		errs = append(errs, h.rt.LinkSetHardwareAddr(link, mac))
	}
	if want.MTU != 0 && want.MTU != l.MTU {
		errs = append(errs, h.rt.LinkSetMTU(link, want.MTU))
	}
	if want.Promiscuous != l.Promiscuous {
		set := h.rt.SetPromiscOff
		if want.Promiscuous {
			set = h.rt.SetPromiscOn
		}
		errs = append(errs, set(link))
	}
	if !l.Up {
		errs = append(errs, h.rt.LinkSetUp(link))
	}
	return errors.Join(errs...)
}

// compareAddresses returns the existing addresses of global scope that are not
// wanted, and the wanted ones that do not exist.
func compareAddresses(want []netip.Prefix, have []netlink.Addr) (extra []netlink.Addr, missing []netip.Prefix) {
	missing = slices.Clone(want)
	for _, a := range have {
		own, ok := addressOf(a)
		if ok && own.Global() && !slices.Contains(want, own.Prefix) {
			extra = append(extra, a)
		}
		missing = slices.DeleteFunc(missing, func(p netip.Prefix) bool { return p == own.Prefix })
	}
	return extra, missing
}

// changeAddresses removes before it adds: an IPv6 address cannot exist with two
// prefix lengths. An address may be gone with one that was removed before.
func (h *Handle) changeAddresses(index int, extra []netlink.Addr, missing []netip.Prefix) error {
	for i := range extra {
		if err := h.rt.AddrDel(nil, &extra[i]); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	for _, p := range missing {
		if err := h.rt.AddrReplace(nil, newAddr(index, p)); err != nil {
			return err
		}
	}
	return nil
}
