package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Get returns the owner's lease, or an error that wraps fs.ErrNotExist. It takes no lock:
// if the lease is being changed, it returns the lease before or after the change.
func (s *Store) Get(owner string) (Lease, error) {
	l, err := s.get(fileName(owner))
	if err != nil {
		return Lease{}, fmt.Errorf("get lease of %.200q: %w", owner, err)
	}
	return l, nil
}

// List returns the valid leases, sorted by their first address. After an error with the
// file of one lease, it returns the others too. It takes no lock.
func (s *Store) List() ([]Lease, error) {
	names, err := readNames(s.owners)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var (
		all  = make([]Lease, 0, len(names))
		errs []error
	)
	for _, name := range names {
		if !isFileName(name) {
			continue
		}
		switch l, err := s.get(name); {
		case err == nil:
			all = append(all, l)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("list leases: %w", err))
		}
	}
	slices.SortFunc(all, byAddress)
	return all, errors.Join(errs...)
}

func byAddress(a, b Lease) int {
	return cmp.Or(slices.CompareFunc(a.Addresses, b.Addresses, netip.Addr.Compare), cmp.Compare(a.Owner, b.Owner))
}

// get returns the lease in an owner's file without locking it. The error is
// fs.ErrNotExist if there is no valid lease. get reads the file and then the links, and
// Allocate may replace the lease in between. If the links do not match, get reads again.
func (s *Store) get(name string) (Lease, error) {
	for range 2 {
		l, err := s.readFile(name)
		if errors.Is(err, errInvalid) {
			break
		}
		if err != nil {
			return Lease{}, err
		}
		if valid, err := s.holds(name, l); err != nil || valid {
			return l, err
		}
	}
	return Lease{}, fs.ErrNotExist
}

func (s *Store) readFile(name string) (Lease, error) {
	f, err := s.owners.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Lease{}, err
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		return Lease{}, err
	}
	return decode(data, name, s.boot)
}

// ownerOf returns the owner of an address, "" if it is unknown.
func (s *Store) ownerOf(a netip.Addr) string {
	name, err := s.holder(a.String())
	if err != nil || name == "" || name == foreign {
		return ""
	}
	l, err := s.get(name)
	if err != nil {
		return ""
	}
	return l.Owner
}

// readNames returns the names in a directory.
func readNames(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
