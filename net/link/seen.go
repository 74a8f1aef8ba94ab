package link

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// seen is what was last heard, so that it is not told again. Where it may be
// wrong it forgets, which costs a look for nothing; the kernel does not tell of
// all that goes.
type seen struct {
	ignore    func(Link) bool
	known     map[int]linkState
	addresses map[addressKey]uint32
	defaults  map[routeKey]Route
}

// linkState is what counts of a link.
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

// routeKey is what no two default routes share but for the ways of one.
type routeKey struct {
	v6     bool
	metric uint32
	way    int
}

// addressFlags are those by which an address can be used, or not.
const addressFlags = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_TEMPORARY

func newSeen(ignore func(Link) bool, all []Link) *seen {
	s := &seen{ignore, map[int]linkState{}, map[addressKey]uint32{}, map[routeKey]Route{}}
	for _, l := range all {
		s.known[l.Index] = s.state(l)
	}
	return s
}

func (s *seen) state(l Link) linkState {
	if l.Loopback || s.ignore != nil && s.ignore(l) {
		return linkState{ignored: true}
	}
	return linkState{false, l.Name, string(l.MAC), l.MTU, l.Master, l.Up, l.Running}
}

// message takes a message of the kernel's, and says whether it changes
// anything that counts.
func (s *seen) message(kind uint16, p []byte) bool {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, ok := parseLink(p)
		return ok && s.link(l, kind == unix.RTM_DELLINK)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, ok := parseAddress(p)
		return ok && a.Global() && !s.known[a.Index].ignored && s.address(a, kind == unix.RTM_DELADDR)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return s.route(p, kind == unix.RTM_DELROUTE)
	}
	return false
}

func (s *seen) link(l Link, gone bool) bool {
	before, known := s.known[l.Index]
	if gone {
		delete(s.known, l.Index)
		s.forget(l.Index)
		return known && !before.ignored || !known && !s.state(l).ignored
	}
	now := s.state(l)
	s.known[l.Index] = now
	if known && now == before {
		return false
	}
	// Routes over a link that loses its carrier go without a word.
	s.forgetRoutes(l.Index)
	return !now.ignored || known
}

func (s *seen) address(a Address, gone bool) bool {
	key := addressKey{a.Index, a.Prefix}
	before, known := s.addresses[key]
	flags := a.Flags & addressFlags
	if gone {
		delete(s.addresses, key)
	} else {
		s.addresses[key] = flags
	}
	if !gone && known && before == flags {
		return false
	}
	// So do routes whose source was the address.
	s.forgetRoutes(a.Index)
	return true
}

func (s *seen) route(p []byte, gone bool) (changed bool) {
	way := 0
	parseRoute(p, func(r Route) {
		if !r.Default() || r.Table != unix.RT_TABLE_MAIN || s.known[r.Link].ignored {
			return
		}
		key := routeKey{r.Dst.Addr().Is6(), r.Metric, way}
		way++
		before, known := s.defaults[key]
		changed = changed || gone || !known || before != r
		if gone {
			delete(s.defaults, key)
		} else {
			s.defaults[key] = r
		}
	})
	return changed
}

// forget drops what was heard of a link that is gone.
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
