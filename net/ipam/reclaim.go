package ipam

import (
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// reclaim is claim for an address that may be that of a process which was
// killed, and so nobody's.
func (o *owner) reclaim(a netip.Addr) (ours bool, err error) {
	if ours, err = o.claim(a); err != nil || ours {
		return ours, err
	}
	name, err := o.store.holder(a.String())
	if err != nil || name == unknown {
		return false, err
	}
	if name != "" && !o.store.reap(name, a) {
		return false, nil
	}
	return o.claim(a)
}

// reap frees an address of an owner that has no lease of it, and says whether
// it did. It waits for nobody, since it is called with another lock held; what
// goes wrong is the other's trouble and leaves the address taken.
func (s *Store) reap(name string, a netip.Addr) bool {
	other, err := s.lock(name, os.O_CREATE, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return false
	}
	defer other.close()
	s.did("locked to reap")
	l, living, err := other.held()
	switch {
	case err != nil || living && slices.Contains(l.Addresses, a):
		return false
	case living:
		_, err = other.unclaim([]netip.Addr{a})
	default:
		_, err = other.clear(append(l.Addresses, a))
	}
	return err == nil
}
