package ipam

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// tempSuffix is the suffix of the temporary file that replaces an owner's file. It is
// written under the owner's lock, so that one name is enough. A file that a killed call
// has left is overwritten.
const tempSuffix = ".new"

// ownerFile is the locked file of an owner. Until close, the file and the links of the
// owner may be changed. It is not safe for concurrent use.
type ownerFile struct {
	store *Store
	name  string
	file  *os.File
	next  *os.File // replaces file; nil except in replace
	size  int      // of the content that lease has read
}

// lock opens and locks an owner's file. With os.O_CREATE in flags it creates a missing
// file. how is unix.LOCK_EX; with unix.LOCK_NB the error is errLocked instead of waiting.
func (s *Store) lock(name string, flags, how int) (*ownerFile, error) {
	for {
		f, err := s.owners.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|flags, modeFile)
		if err != nil {
			return nil, err
		}
		// While this call waited, the file may have been removed or replaced. Its lock
		// then protects nothing.
		named, err := s.lockFile(f, name, how)
		if named {
			return &ownerFile{store: s, name: name, file: f}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// lockFile locks f and reports whether f still has its name.
func (s *Store) lockFile(f *os.File, name string, how int) (named bool, err error) {
	if err := flock(f, how); err != nil {
		return false, err
	}
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	current, err := s.owners.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !current.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file: remove it", s.owners.Name()+"/"+name)
	}
	return os.SameFile(locked, current), nil
}

func flock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// close releases the lock. The kernel does the same for a process that is killed.
func (o *ownerFile) close() {
	o.file.Close()
	if o.next != nil {
		o.next.Close()
	}
}

// lease reads the lease from the file. It does not check whether the owner has the
// addresses. The error wraps errInvalid if the file contains no lease.
func (o *ownerFile) lease() (Lease, error) {
	data, err := readAll(o.file)
	if err != nil {
		return Lease{}, err
	}
	o.size = len(data)
	return decode(data, o.name, o.store.boot)
}

// current returns the lease and whether it is valid. The owner may have some addresses of
// an invalid lease.
func (o *ownerFile) current() (l Lease, valid bool, err error) {
	l, err = o.lease()
	if errors.Is(err, errInvalid) {
		return Lease{}, false, nil
	}
	if err != nil {
		return Lease{}, false, err
	}
	valid, err = o.store.holds(o.name, l)
	return l, valid, err
}

// readAll reads a file from its start, up to one byte more than maxFile.
func readAll(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, maxFile+1))
}

// truncate removes the content that lease has read. It does not truncate an empty file:
// ext4 writes a file that was truncated to zero to the disk as soon as it is closed
// (auto_da_alloc in Documentation/admin-guide/ext4.rst).
func (o *ownerFile) truncate() error {
	if o.size == 0 {
		return nil
	}
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	o.store.did("truncated")
	return nil
}

// write writes the lease to the empty file. A partial file contains no lease.
func (o *ownerFile) write(data []byte) error {
	if _, err := o.file.WriteAt(data, 0); err != nil {
		return err
	}
	o.store.did("written")
	return nil
}

// replace replaces the file atomically. The new file is locked before it gets the name,
// so that the owner stays locked. After an error the file is unchanged.
func (o *ownerFile) replace(data []byte) (err error) {
	name := o.name + tempSuffix
	o.next, err = o.store.owners.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, modeFile)
	if err != nil {
		return err
	}
	o.store.did("new file created")
	err = o.writeNext(data)
	if err == nil {
		err = o.store.owners.Rename(name, o.name)
	}
	if err != nil {
		return errors.Join(err, o.store.owners.Remove(name))
	}
	o.store.did("new file renamed")
	o.file.Close()
	o.file, o.next = o.next, nil
	return nil
}

func (o *ownerFile) writeNext(data []byte) error {
	if err := flock(o.next, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if _, err := o.next.WriteAt(data, 0); err != nil {
		return err
	}
	o.store.did("new file written")
	return nil
}

// reserve reserves an address for this owner, if it does not have it already. ours is
// false if another owner has it.
func (o *ownerFile) reserve(a netip.Addr) (ours bool, err error) {
	err = o.store.links.Symlink(linkTarget(o.name), a.String())
	if errors.Is(err, fs.ErrExist) {
		holder, err := o.store.holder(a.String())
		return holder == o.name, err
	}
	if err != nil {
		return false, fmt.Errorf("reserve address %s: %w", a, linkError(err))
	}
	o.store.did("reserved")
	return true, nil
}

// free frees those of the addresses that this owner has.
func (o *ownerFile) free(list []netip.Addr) error {
	for _, a := range list {
		holder, err := o.store.holder(a.String())
		if err != nil {
			return fmt.Errorf("free address %s: %w", a, err)
		}
		if holder != o.name {
			continue
		}
		if err := o.store.links.Remove(a.String()); err != nil {
			return fmt.Errorf("free address %s: %w", a, err)
		}
		o.store.did("freed")
	}
	return nil
}

// remove frees the addresses and removes the owner's files. It removes the locked file
// last, because the owner's other files are found by its name.
func (o *ownerFile) remove(list []netip.Addr) error {
	if err := o.free(list); err != nil {
		return err
	}
	if err := o.removeTemp(); err != nil {
		return err
	}
	if err := o.store.owners.Remove(o.name); err != nil {
		return err
	}
	o.store.did("removed")
	return nil
}

// removeTemp removes the temporary file that a killed replace has left.
func (o *ownerFile) removeTemp() error {
	err := o.store.owners.Remove(o.name + tempSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// difference returns the addresses of a that are not in b.
func difference(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}
