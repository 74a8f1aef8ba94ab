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

// Collect frees the leases that keep refuses, those of earlier boots, and what
// killed processes left, and returns the leases among them, sorted by address.
// What somebody is at work on is left for the next time. A nil keep refuses
// none.
//
// keep is asked with no lock held, and may itself tear down what hangs on a
// lease before it refuses it; it is not asked about leases of earlier boots.
// A lease may have been made after keep's caller listed the pods: whoever
// collects while pods are started keeps what is newer than its list.
//
// An error of one does not keep the others from being freed.
func (s *Store) Collect(keep func(Lease) bool) (gone []Lease, err error) {
	gone, errOld := s.collectBoots()
	now, errNow := s.collectNow(keep)
	gone = append(gone, now...)
	slices.SortFunc(gone, byAddress)
	if err := errors.Join(errOld, errNow); err != nil {
		return gone, fmt.Errorf("collect leases: %w", err)
	}
	return gone, nil
}

// collectNow does so for this boot.
func (s *Store) collectNow(keep func(Lease) bool) (gone []Lease, err error) {
	claims, errLinks := s.claims()
	errs := []error{errLinks}
	names, err := list(s.owners)
	if err != nil {
		return nil, errors.Join(err, errLinks)
	}
	for _, name := range names {
		if name = strings.TrimSuffix(name, newSuffix); isName(name) && claims[name] == nil {
			claims[name] = []netip.Addr{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		l, err := s.collectOwner(name, claims[name], slices.Contains(names, name+newSuffix), keep)
		if err == nil && l.Owner != "" {
			gone = append(gone, l)
		}
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

// collectOwner frees what an owner should not have and returns the lease that
// it lost.
func (s *Store) collectOwner(name string, claims []netip.Addr, litter bool, keep func(Lease) bool) (Lease, error) {
	asked, err := s.look(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Lease{}, err
	}
	refused := err == nil && keep != nil && !keep(asked)
	if err == nil && !refused && !litter && len(without(claims, asked.Addresses)) == 0 {
		return Lease{}, nil
	}
	o, err := s.lock(name, os.O_CREATE, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, errBusy) {
		return Lease{}, nil
	}
	if err != nil {
		return Lease{}, err
	}
	defer o.close()
	s.did("locked to collect")
	if litter {
		if err := o.removeLitter(); err != nil {
			return Lease{}, err
		}
	}
	l, living, err := o.held()
	if err != nil {
		return Lease{}, err
	}
	if living && !(refused && l.same(asked)) {
		_, err := o.unclaim(without(claims, l.Addresses))
		return Lease{}, err
	}
	freed, err := o.clear(append(claims, without(l.Addresses, claims)...))
	// Of what a killed Release left, others may have the rest by now.
	l.Addresses = without(l.Addresses, without(l.Addresses, freed))
	return l, err
}

// collectBoots removes the folders of earlier boots.
func (s *Store) collectBoots() (gone []Lease, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := list(root)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		boot, ok := strings.CutPrefix(name, bootPrefix)
		if !ok || boot == s.boot || !isBootID(boot) {
			continue
		}
		gone = append(gone, s.leasesOf(boot)...)
		errs = append(errs, root.RemoveAll(name))
	}
	return gone, errors.Join(errs...)
}

// leasesOf are what can be read of an earlier boot's leases.
func (s *Store) leasesOf(boot string) []Lease {
	old, err := openBoot(s.dir, boot)
	if err != nil {
		return nil
	}
	defer old.Close()
	// What a power cut tore has no lease to tell of.
	all, _ := old.All()
	return all
}
