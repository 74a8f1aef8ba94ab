package link

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// seen is the state that was reported last, so that repetitions are not reported. The
// kernel does not notify of every removal. State that may be outdated is dropped, which
// may cause a report without a change. Addresses and default routes that exist before
// the subscription are not known, so that their first notification is reported.
type seen struct {
	ignore    Ignore
	links     map[int]linkState
	addresses map[addressKey]uint32
	defaults  map[routeKey]string
}

// linkState are the fields of a link that count.
type linkState struct {
	ignored     bool
	name, mac   string
	mtu, master int
	up, running bool
}

type addressKey struct {
	index  int
	prefix netip.Prefix
}

// routeKey identifies a default route of the main table.
type routeKey struct {
	family uint8
	metric uint32
}

// addressFlags are the flags that decide whether an address is usable.
const addressFlags = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_TEMPORARY

func newSeen(ignore Ignore, all []Link) *seen {
	s := &seen{ignore, map[int]linkState{}, map[addressKey]uint32{}, map[routeKey]string{}}
	for _, l := range all {
		s.links[l.Index] = s.state(l)
	}
	return s
}

func (s *seen) state(l Link) linkState {
	if l.Loopback || s.ignore.Link != nil && s.ignore.Link(l) {
		return linkState{ignored: true}
	}
	if s.ignore.Ports != nil && s.ignore.Ports(l) {
		l.Running, l.MTU = false, 0
	}
	return linkState{false, l.Name, string(l.MAC), l.MTU, l.Master, l.Up, l.Running}
}

// message reports whether a notification changes anything that counts.
func (s *seen) message(kind uint16, payload []byte) bool {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, ok := parseLink(payload)
		return ok && s.link(l, kind == unix.RTM_DELLINK)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, ok := parseAddress(payload)
		return ok && a.Global() && !s.links[a.Index].ignored && s.address(a, kind == unix.RTM_DELADDR)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		key, content, ok := parseDefaultRoute(payload)
		return ok && s.route(key, content, kind == unix.RTM_DELROUTE)
	}
	return false
}

func (s *seen) link(l Link, removed bool) bool {
	before, known := s.links[l.Index]
	if removed {
		delete(s.links, l.Index)
		maps.DeleteFunc(s.addresses, func(key addressKey, _ uint32) bool { return key.index == l.Index })
		return known && !before.ignored || !known && !s.state(l).ignored
	}
	now := s.state(l)
	s.links[l.Index] = now
	if known && now == before || !known && now.ignored {
		return false
	}
	// Routes over a link that loses its carrier are removed without a notification.
	clear(s.defaults)
	return true
}

func (s *seen) address(a Address, removed bool) bool {
	key := addressKey{a.Index, a.Prefix}
	before, known := s.addresses[key]
	flags := a.Flags & addressFlags
	if removed {
		delete(s.addresses, key)
	} else {
		s.addresses[key] = flags
	}
	if !removed && known && before == flags {
		return false
	}
	// Routes with this preferred source address are removed without a notification too.
	clear(s.defaults)
	return true
}

func (s *seen) route(key routeKey, content string, removed bool) bool {
	before, known := s.defaults[key]
	if removed {
		delete(s.defaults, key)
		return true
	}
	s.defaults[key] = content
	return !known || before != content
}

// parseLink parses the payload of RTM_NEWLINK or RTM_DELLINK. A bridge's notifications
// about its ports (AF_BRIDGE) describe no link.
func parseLink(payload []byte) (Link, bool) {
	if len(payload) < unix.SizeofIfInfomsg || nl.DeserializeIfInfomsg(payload).Family != unix.AF_UNSPEC {
		return Link{}, false
	}
	l, err := netlink.LinkDeserialize(nil, payload)
	if err != nil {
		return Link{}, false
	}
	return fromLibrary(l), true
}

// parseAddress parses the payload of RTM_NEWADDR or RTM_DELADDR, because the library's
// parser is not exported. IPv6 has IFA_LOCAL only with a peer.
func parseAddress(payload []byte) (Address, bool) {
	if len(payload) < unix.SizeofIfAddrmsg {
		return Address{}, false
	}
	m := nl.DeserializeIfAddrmsg(payload)
	attributes, err := nl.ParseRouteAttr(payload[m.Len():])
	a := Address{Index: int(m.Index), Scope: m.Scope, Flags: uint32(m.Flags)}
	var local, address netip.Addr
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.IFA_LOCAL:
			local = addrOf(attribute.Value)
		case unix.IFA_ADDRESS:
			address = addrOf(attribute.Value)
		case unix.IFA_FLAGS:
			a.Flags = number(attribute.Value)
		}
	}
	if !local.IsValid() {
		local = address
	}
	a.Prefix = netip.PrefixFrom(local, int(m.Prefixlen))
	return a, err == nil && a.Prefix.IsValid()
}

// parseDefaultRoute parses the payload of RTM_NEWROUTE or RTM_DELROUTE. ok is false if
// it is not about a default route of the main table. content is what makes two routes
// equal: all but RTA_CACHEINFO, which contains lifetimes.
func parseDefaultRoute(payload []byte) (key routeKey, content string, ok bool) {
	if len(payload) < unix.SizeofRtMsg {
		return key, "", false
	}
	m := nl.DeserializeRtMsg(payload)
	if m.Dst_len != 0 || m.Flags&unix.RTM_F_CLONED != 0 {
		return key, "", false
	}
	attributes, err := nl.ParseRouteAttr(payload[m.Len():])
	key.family = m.Family
	table := uint32(m.Table)
	equal := slices.Clone(payload[:m.Len()])
	for _, attribute := range attributes {
		switch kind := attribute.Attr.Type; kind {
		case unix.RTA_CACHEINFO:
			continue
		case unix.RTA_TABLE:
			table = number(attribute.Value)
		case unix.RTA_PRIORITY:
			key.metric = number(attribute.Value)
		}
		equal = append(append(equal, byte(attribute.Attr.Type)), attribute.Value...)
	}
	return key, string(equal), err == nil && table == unix.RT_TABLE_MAIN
}

// number returns an attribute's number, 0 if it has none.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return nl.NativeEndian().Uint32(value)
}
