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
// killed processes have left. It returns the freed leases, sorted by address. It skips
// owners that another call has locked. A nil keep keeps all leases of this boot.
//
// keep is called without a lock, and not for leases of earlier boots. Before it returns
// false it may remove what uses the lease. A lease may be newer than the list of pods that
// keep uses: a caller that collects while pods start must keep leases that are newer than
// its list.
//
// Collect continues after an error.
func (s *Store) Collect(keep func(Lease) bool) (gone []Lease, err error) {
	gone, errOld := s.removeOldBoots()
	current, errCurrent := s.collectCurrent(keep)
	gone = append(gone, current...)
	slices.SortFunc(gone, byAddress)
	if err := errors.Join(errOld, errCurrent); err != nil {
		return gone, fmt.Errorf("collect leases: %w", err)
	}
	return gone, nil
}

// collectCurrent is Collect for the leases of this boot.
func (s *Store) collectCurrent(keep func(Lease) bool) (gone []Lease, err error) {
	reserved, errLinks := s.reservations()
	if reserved == nil {
		return nil, errLinks
	}
	errs := []error{errLinks}
	names, err := readNames(s.owners)
	if err != nil {
		return nil, errors.Join(err, errLinks)
	}
	for _, name := range names {
		if name = strings.TrimSuffix(name, tempSuffix); isFileName(name) && reserved[name] == nil {
			reserved[name] = []netip.Addr{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		l, err := s.collectOwner(name, reserved[name], slices.Contains(names, name+tempSuffix), keep)
		if err == nil && l.Owner != "" {
			gone = append(gone, l)
		}
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

// collectOwner frees the addresses of an owner that are in no valid lease, and the lease
// if keep returns false for it. It returns the freed lease. temp means that the owner has
// a temporary file.
func (s *Store) collectOwner(name string, reserved []netip.Addr, temp bool, keep func(Lease) bool) (Lease, error) {
	checked, err := s.get(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Lease{}, err
	}
	rejected := err == nil && keep != nil && !keep(checked)
	if err == nil && !rejected && !temp && len(difference(reserved, checked.Addresses)) == 0 {
		return Lease{}, nil
	}
	o, err := s.lock(name, os.O_CREATE, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, errLocked) {
		return Lease{}, nil
	}
	if err != nil {
		return Lease{}, err
	}
	defer o.close()
	s.did("locked to collect")
	if temp {
		if err := o.removeTemp(); err != nil {
			return Lease{}, err
		}
	}
	l, valid, err := o.current()
	if err != nil {
		return Lease{}, err
	}
	if valid && !(rejected && l.same(checked)) {
		_, err := o.free(difference(reserved, l.Addresses))
		return Lease{}, err
	}
	freed, err := o.remove(append(reserved, difference(l.Addresses, reserved)...))
	// Other owners may have the addresses that a killed Release has freed.
	l.Addresses = difference(l.Addresses, difference(l.Addresses, freed))
	return l, err
}

// removeOldBoots removes the directories of earlier boots and returns their leases.
func (s *Store) removeOldBoots() (gone []Lease, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := readNames(root)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		boot, ok := strings.CutPrefix(name, bootPrefix)
		if !ok || boot == s.boot || !isBootID(boot) {
			continue
		}
		gone = append(gone, s.leasesOfBoot(boot)...)
		errs = append(errs, root.RemoveAll(name))
	}
	return gone, errors.Join(errs...)
}

// leasesOfBoot returns the readable leases of an earlier boot.
func (s *Store) leasesOfBoot(boot string) []Lease {
	old, err := openBoot(s.dir, boot)
	if err != nil {
		return nil
	}
	defer old.Close()
	// A power cut may have damaged files.
	all, _ := old.List()
	return all
}
