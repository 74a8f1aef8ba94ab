package link

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is the state of a network interface.
type Link struct {
	Index int
	Name  string
	Kind  string // bridge, veth, ...; "" for a device
	Alias string
	MTU   int              // bytes
	MAC   net.HardwareAddr // nil if it has none
	// Master is the index of the bridge or other device whose port it is, 0 for none.
	Master int
	// Up is the administrative state; Running means that the link can carry packets.
	Up, Running bool
	Loopback    bool
	Promiscuous bool // administrative state
}

// fromLibrary copies what is used of a link. The library's slices share the memory
// of a whole message.
func fromLibrary(l netlink.Link) Link {
	a := l.Attrs()
	kind := l.Type()
	if _, device := l.(*netlink.Device); device {
		kind = ""
	}
	return Link{
		Index: a.Index, Name: a.Name, Kind: kind, Alias: a.Alias, MTU: a.MTU, MAC: slices.Clone(a.HardwareAddr),
		Master: a.MasterIndex, Up: a.RawFlags&unix.IFF_UP != 0, Running: a.RawFlags&unix.IFF_RUNNING != 0,
		Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0, Promiscuous: a.RawFlags&unix.IFF_PROMISC != 0,
	}
}

// Link returns the link of a name. ErrNotFound if there is none.
func (h *Handle) Link(name string) (Link, error) {
	if err := ValidName(name); err != nil {
		return Link{}, err
	}
	l, err := read(func() (netlink.Link, error) { return h.rt.LinkByName(name) })
	if err != nil {
		return Link{}, fmt.Errorf("read link %s: %w", name, err)
	}
	return fromLibrary(l), nil
}

// LinkByIndex returns the link of an index. ErrNotFound if there is none.
func (h *Handle) LinkByIndex(index int) (Link, error) {
	if index <= 0 {
		return Link{}, fmt.Errorf("read link %d: %w", index, ErrNotFound)
	}
	l, err := read(func() (netlink.Link, error) { return h.rt.LinkByIndex(index) })
	if err != nil {
		return Link{}, fmt.Errorf("read link %d: %w", index, err)
	}
	return fromLibrary(l), nil
}

// Links returns all links, in no order.
func (h *Handle) Links() ([]Link, error) {
	all, err := read(h.rt.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	links := make([]Link, len(all))
	for i, l := range all {
		links[i] = fromLibrary(l)
	}
	return links, nil
}

// Hairpin reports whether the bridge sends frames back through the port with this
// index. The error does not distinguish a missing link from one that is not a port.
func (h *Handle) Hairpin(port int) (bool, error) {
	info, err := read(func() (netlink.Protinfo, error) { return h.rt.LinkGetProtinfo(withIndex(port)) })
	if err != nil {
		return false, fmt.Errorf("read bridge port %d: %w", port, err)
	}
	return info.Hairpin, nil
}

// SetDown sets the link of a name down: the kernel neither sends nor receives by it. It
// returns nil if there is none.
func (h *Handle) SetDown(name string) error { return h.change("set down", name, h.rt.LinkSetDown) }

// DeleteLink removes the link of a name. It returns nil if there is none. The other
// end of a veth goes with it.
func (h *Handle) DeleteLink(name string) error { return h.change("delete", name, h.rt.LinkDel) }

// change calls a function of the library for the link of a name.
func (h *Handle) change(what, name string, call func(netlink.Link) error) error {
	l, err := h.Link(name)
	if err == nil {
		err = translate(call(withIndex(l.Index)))
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%s link %s: %w", what, name, err)
	}
	return nil
}
