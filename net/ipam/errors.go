package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrExhausted is the error of Allocate if all addresses of a range are leased.
type ErrExhausted struct {
	// Range is the range, completed with its default.
	Range Range
	// Leases is the number of addresses that are leased.
	Leases int
}

// Error names the range and the remedy.
func (e ErrExhausted) Error() string {
	first, last := e.Range.hosts()
	return fmt.Sprintf("no free address in %s (%s to %s): all %d are leased: release some, or give the node a larger range",
		e.Range.Prefix, first, last, e.Leases)
}

// ErrAllocated is the error of Allocate if another owner has a requested address.
type ErrAllocated struct {
	Address netip.Addr
	// Owner has the address. It is "" if the owner is unknown, for example while a
	// lease is being created or released.
	Owner string
}

// Error names the address and its owner.
func (e ErrAllocated) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("address %s is already allocated", e.Address)
	}
	return fmt.Sprintf("address %s is already allocated to %q", e.Address, e.Owner)
}

// ErrNoSymlinks is the error for a directory on a file system without symbolic links,
// such as FAT.
var ErrNoSymlinks = errors.New("file system has no symbolic links: put the directory on ext4, f2fs or a tmpfs such as /run")

// errLocked means that another call holds the lock of the owner's file.
var errLocked = errors.New("lease is locked")

// linkError wraps an error of symlink(2) in ErrNoSymlinks if the file system does not
// support symbolic links.
func linkError(err error) error {
	for _, e := range []error{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w (%w)", ErrNoSymlinks, err)
		}
	}
	return err
}
