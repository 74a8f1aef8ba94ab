package link

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// seen is the state that was reported last, so that repetitions are not reported. The
// kernel does not report everything that is removed. Where seen may be wrong it
// forgets, which may cause a report without a change.
type seen struct {
	ignore    func(Link) bool
	links     map[int]linkState
	addresses map[addressKey]uint32
	defaults  map[routeKey]Route
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

// routeKey is unique for each path of the default routes.
type routeKey struct {
	v6     bool
	metric uint32
	path   int
}

// addressFlags are the flags that decide whether an address is usable.
const addressFlags = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_TEMPORARY

func newSeen(ignore func(Link) bool, all []Link) *seen {
	s := &seen{ignore, map[int]linkState{}, map[addressKey]uint32{}, map[routeKey]Route{}}
	for _, l := range all {
		s.links[l.Index] = s.state(l)
	}
	return s
}

func (s *seen) state(l Link) linkState {
	if l.Loopback || s.ignore != nil && s.ignore(l) {
		return linkState{ignored: true}
	}
	return linkState{false, l.Name, string(l.MAC), l.MTU, l.Master, l.Up, l.Running}
}

// linkUpdate reports whether a notification changes anything that counts. A bridge's
// notifications about its ports (AF_BRIDGE) describe no link.
func (s *seen) linkUpdate(u netlink.LinkUpdate) bool {
	return u.Family != unix.AF_BRIDGE && s.link(fromLibrary(u.Link), u.Header.Type == unix.RTM_DELLINK)
}

func (s *seen) addressUpdate(u netlink.AddrUpdate) bool {
	a := Address{Index: u.LinkIndex, Prefix: prefixOf(&u.LinkAddress), Scope: uint8(u.Scope), Flags: uint32(u.Flags)}
	return a.Global() && !s.links[a.Index].ignored && s.address(a, !u.NewAddr)
}

func (s *seen) routeUpdate(u netlink.RouteUpdate) (changed bool) {
	if u.Flags&unix.RTM_F_CLONED != 0 {
		return false
	}
	for i, r := range routesOf(u.Route) {
		if r.Default() && r.Table == unix.RT_TABLE_MAIN && !s.links[r.Link].ignored {
			changed = s.route(r, i, u.Type == unix.RTM_DELROUTE) || changed
		}
	}
	return changed
}

func (s *seen) link(l Link, removed bool) bool {
	before, known := s.links[l.Index]
	if removed {
		delete(s.links, l.Index)
		s.forget(l.Index)
		return known && !before.ignored || !known && !s.state(l).ignored
	}
	now := s.state(l)
	s.links[l.Index] = now
	if known && now == before {
		return false
	}
	// Routes over a link that loses its carrier are removed without a notification.
	s.forgetRoutes(l.Index)
	return !now.ignored || known
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
	// So are routes with this preferred source address.
	s.forgetRoutes(a.Index)
	return true
}

func (s *seen) route(r Route, path int, removed bool) bool {
	key := routeKey{r.Dst.Addr().Is6(), r.Metric, path}
	before, known := s.defaults[key]
	if removed {
		delete(s.defaults, key)
		return true
	}
	s.defaults[key] = r
	return !known || before != r
}

// forget drops the state of a link that was removed.
func (s *seen) forget(index int) {
	s.forgetRoutes(index)
	for key := range s.addresses {
		if key.index == index {
			delete(s.addresses, key)
		}
	}
}

func (s *seen) forgetRoutes(index int) {
	for key, r := range s.defaults {
		if r.Link == index {
			delete(s.defaults, key)
		}
	}
}
