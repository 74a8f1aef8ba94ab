package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Collect frees the leases for which keep returns false, those of earlier boots and what
// killed processes have left. It returns the number of the freed leases. It skips
// owners that another call has locked. A nil keep keeps all leases of this boot.
//
// keep is called without a lock, and not for leases of earlier boots. Before it returns
// false it may remove what uses the lease. A lease may be newer than the list of pods that
// keep uses: a caller that collects while pods start must keep leases that are newer than
// its list.
//
// Collect continues after an error.
func (s *Store) Collect(keep func(Lease) bool) (gone int, err error) {
	old, errOld := s.removeOldBoots()
	gone, err = s.collectCurrent(keep)
	if err = errors.Join(errOld, err); err != nil {
		err = fmt.Errorf("collect leases: %w", err)
	}
	return old + gone, err
}

// collectCurrent is Collect for the leases of this boot.
func (s *Store) collectCurrent(keep func(Lease) bool) (gone int, err error) {
	reserved, errLinks := s.reservations()
	if reserved == nil {
		return 0, errLinks
	}
	errs := []error{errLinks}
	names, err := readNames(s.owners)
	if err != nil {
		return 0, errors.Join(err, errLinks)
	}
	for _, name := range names {
		if name = strings.TrimSuffix(name, tempSuffix); isFileName(name) && reserved[name] == nil {
			reserved[name] = []netip.Addr{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		freed, err := s.collectOwner(name, reserved[name], slices.Contains(names, name+tempSuffix), keep)
		if err == nil && freed {
			gone++
		}
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

// collectOwner frees the addresses of an owner that are in no valid lease, and the lease
// if keep returns false for it. freed means that a lease was freed, temp that the owner has
// a temporary file.
func (s *Store) collectOwner(name string, reserved []netip.Addr, temp bool, keep func(Lease) bool) (freed bool, err error) {
	checked, err := s.get(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	rejected := err == nil && keep != nil && !keep(checked)
	if err == nil && !rejected && !temp && len(difference(reserved, checked.Addresses)) == 0 {
		return false, nil
	}
	o, err := s.lock(name, os.O_CREATE, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer o.close()
	s.did("locked to collect")
	if temp {
		if err := o.removeTemp(); err != nil {
			return false, err
		}
	}
	l, valid, err := o.current()
	if err != nil {
		return false, err
	}
	if valid && !(rejected && l.same(checked)) {
		return false, o.free(difference(reserved, l.Addresses))
	}
	return l.Owner != "", o.remove(append(reserved, difference(l.Addresses, reserved)...))
}

// removeOldBoots removes the directories of earlier boots and returns the number of their
// readable leases.
func (s *Store) removeOldBoots() (gone int, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	names, err := readNames(root)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, name := range names {
		boot, ok := strings.CutPrefix(name, bootPrefix)
		if !ok || boot == s.boot || !isBootID(boot) {
			continue
		}
		if old, err := openBoot(s.dir, boot); err == nil {
			all, _ := old.List() // a power cut may have damaged files
			old.Close()
			gone += len(all)
		}
		errs = append(errs, root.RemoveAll(name))
	}
	return gone, errors.Join(errs...)
}
