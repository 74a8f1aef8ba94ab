package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrExhausted says that all addresses of a range are taken.
type ErrExhausted struct {
	// Range is the one, complete.
	Range Range
	// Leases is how many of its addresses are taken.
	Leases int
}

// Error names the range and the remedy.
func (e ErrExhausted) Error() string {
	return fmt.Sprintf("no address is left of %s (%s to %s): all %d have leases: release some, or give the node a larger range",
		e.Range.Prefix, e.Range.First, e.Range.Last, e.Leases)
}

// ErrTaken says that an address that was wanted by name is another's.
type ErrTaken struct {
	Address netip.Addr
	// Owner is who has it; "" where that cannot be told, as while a lease is
	// being made or released.
	Owner string
}

// Error names the address and its owner.
func (e ErrTaken) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("address %s is taken", e.Address)
	}
	return fmt.Sprintf("address %s is taken by %q", e.Address, e.Owner)
}

// ErrNoLinks says that the folder is on a file system without symbolic links,
// such as FAT.
var ErrNoLinks = errors.New("its file system has no symbolic links: put the folder on ext4, f2fs or a tmpfs such as /run")

// errBusy says that a lease is being changed by somebody who lives.
var errBusy = errors.New("lease is being changed")

// linkError is what symlink(2) said, in words that help.
func linkError(err error) error {
	for _, e := range []error{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w (%w)", ErrNoLinks, err)
		}
	}
	return err
}
