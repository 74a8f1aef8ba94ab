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

// Get is the owner's lease, or an error that is fs.ErrNotExist. It waits for
// nobody: of a lease that is being changed it is the one before or after.
func (s *Store) Get(owner string) (Lease, error) {
	l, err := s.look(nameOf(owner))
	if err != nil {
		return Lease{}, fmt.Errorf("get lease of %.200q: %w", owner, err)
	}
	return l, nil
}

// All are the leases that count, sorted by their first address. With an error
// of one lease's file, the others are returned too. It waits for nobody.
func (s *Store) All() ([]Lease, error) {
	names, err := list(s.owners)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var (
		all  = make([]Lease, 0, len(names))
		errs []error
	)
	for _, name := range names {
		if !isName(name) {
			continue
		}
		switch l, err := s.look(name); {
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

// look reads a lease without its lock; fs.ErrNotExist where none counts. Its
// file and links are two looks, between which Take may have put another lease
// in its place: whoever sees that looks once more.
func (s *Store) look(name string) (Lease, error) {
	var (
		l    Lease
		held bool
		err  error
	)
	for range 2 {
		if l, err = s.read(name); err != nil {
			break
		}
		if held, err = s.holds(name, l); err != nil || held {
			return l, err
		}
	}
	if err == nil || errors.Is(err, errTorn) {
		return Lease{}, fs.ErrNotExist
	}
	return Lease{}, err
}

func (s *Store) read(name string) (Lease, error) {
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

// ownerOf is who has an address, "" if that cannot be told.
func (s *Store) ownerOf(a netip.Addr) string {
	name, err := s.holder(a.String())
	if err != nil || name == "" || name == unknown {
		return ""
	}
	l, err := s.look(name)
	if err != nil {
		return ""
	}
	return l.Owner
}

// list is the names in a folder.
func list(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
