package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"
)

// unknown is whose an address is that no Store linked.
const unknown = "?"

// target is what the links of an owner contain.
func target(name string) string { return "../" + ownersDir + "/" + name }

// holds says whether all addresses of a lease are its owner's.
func (s *Store) holds(name string, l Lease) (bool, error) {
	for _, a := range l.Addresses {
		who, err := s.holder(a.String())
		if err != nil || who != name {
			return false, err
		}
	}
	return true, nil
}

// holder is the name of the file of who has an address: "" where nobody has
// it, unknown where the name is taken by what no Store made.
func (s *Store) holder(address string) (name string, err error) {
	to, err := s.links.Readlink(address)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, unix.EINVAL):
		return unknown, nil
	case err != nil:
		return "", err
	}
	const dir = len("../" + ownersDir + "/")
	if len(to) != dir+nameLen || !isName(to[dir:]) || to != target(to[dir:]) {
		return unknown, nil
	}
	return to[dir:], nil
}

// claims are all links, by the names of their owners' files. The error tells of
// what is in the way and is no link; the others are returned all the same.
func (s *Store) claims() (map[string][]netip.Addr, error) {
	names, err := list(s.links)
	if err != nil {
		return nil, err
	}
	var errs []error
	all := make(map[string][]netip.Addr)
	for _, name := range names {
		a, err := netip.ParseAddr(name)
		who := unknown
		if err == nil && a.String() == name {
			who, err = s.holder(name)
		}
		switch {
		case who == unknown:
			errs = append(errs, fmt.Errorf("%s/%s is no link of a lease: remove it", s.links.Name(), name))
		case err != nil:
			errs = append(errs, err)
		case who != "":
			all[who] = append(all[who], a)
		}
	}
	return all, errors.Join(errs...)
}
