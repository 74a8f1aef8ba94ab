package nft

// slot is what ports have to share to exclude each other.
type slot struct {
	protocol Protocol
	host     uint16
	v4       bool
}

// slots are ports, none of which excludes another.
type slots map[slot][]Port

func (p Port) slot() slot { return slot{p.Protocol, p.Host, p.Pod.Is4()} }

func (s slots) add(p Port) { s[p.slot()] = append(s[p.slot()], p) }

// against is the port that excludes one: itself, one on the same address, or
// another owner's.
func (s slots) against(p Port) (q Port, taken bool) {
	for _, q := range s[p.slot()] {
		if p.HostIP == q.HostIP || p.collides(q) {
			return q, true
		}
	}
	return Port{}, false
}

// collides says that two ports of different owners exclude each other, one of
// them on all addresses and one on one.
func (p Port) collides(q Port) bool {
	return p.Owner != q.Owner && p.slot() == q.slot() && p.HostIP.IsValid() != q.HostIP.IsValid()
}
