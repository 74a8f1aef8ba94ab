package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// foreign is the result of holder for a name that is not a link of a Store.
const foreign = "?"

// linkTarget returns the target of an owner's links. name is that of the owner's file.
func linkTarget(name string) string { return "../" + ownersDir + "/" + name }

// holds reports whether the owner with the file name has all addresses of a lease.
func (s *Store) holds(name string, l Lease) (bool, error) {
	for _, a := range l.Addresses {
		holder, err := s.holder(a.String())
		if err != nil || holder != name {
			return false, err
		}
	}
	return true, nil
}

// holder returns the file name of the owner that has an address. It is "" if no owner has
// it, and foreign if the directory has another file with that name.
func (s *Store) holder(address string) (name string, err error) {
	to, err := s.links.Readlink(address)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, unix.EINVAL):
		return foreign, nil
	case err != nil:
		return "", err
	}
	name, ours := strings.CutPrefix(to, linkTarget(""))
	if !ours || !isFileName(name) {
		return foreign, nil
	}
	return name, nil
}

// reservations returns the addresses of all links by the file names of their owners. The
// error names the files that are no links of a Store. The links are returned also with an
// error, except if the directory cannot be read.
func (s *Store) reservations() (map[string][]netip.Addr, error) {
	names, err := readNames(s.links)
	if err != nil {
		return nil, err
	}
	var errs []error
	all := make(map[string][]netip.Addr)
	for _, name := range names {
		a, err := netip.ParseAddr(name)
		holder := foreign
		if err == nil && a.String() == name {
			holder, err = s.holder(name)
		}
		switch {
		case holder == foreign:
			errs = append(errs, fmt.Errorf("%s/%s is not the link of a lease: remove it", s.links.Name(), name))
		case err != nil:
			errs = append(errs, err)
		case holder != "":
			all[holder] = append(all[holder], a)
		}
	}
	return all, errors.Join(errs...)
}
