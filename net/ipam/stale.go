package ipam

import (
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// reserveStale is reserve for an address whose link a killed call may have left. It frees
// such an address first.
func (o *ownerFile) reserveStale(a netip.Addr) (ours bool, err error) {
	if ours, err = o.reserve(a); err != nil || ours {
		return ours, err
	}
	name, err := o.store.holder(a.String())
	if err != nil || name == foreign {
		return false, err
	}
	if name != "" && !o.store.freeStale(name, a) {
		return false, nil
	}
	return o.reserve(a)
}

// freeStale frees an address that is in no valid lease of the owner with the file name,
// and reports whether it did. It does not wait for a lock, because its caller holds
// another one. After any error the address stays reserved.
func (s *Store) freeStale(name string, a netip.Addr) bool {
	other, err := s.lock(name, os.O_CREATE, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return false
	}
	defer other.close()
	s.did("locked to free")
	l, valid, err := other.current()
	switch {
	case err != nil || valid && slices.Contains(l.Addresses, a):
		return false
	case valid:
		err = other.free([]netip.Addr{a})
	default:
		err = other.remove(append(l.Addresses, a))
	}
	return err == nil
}
