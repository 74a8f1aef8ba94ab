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

// newSuffix is of the file that replaces an owner's. It is written under the
// owner's lock, so one name is enough, and one that was left is written anew.
const newSuffix = ".new"

// owner is an owner's file, locked: all that is the owner's may be changed
// until close. It is for one goroutine.
type owner struct {
	store *Store
	name  string
	file  *os.File
	next  *os.File // takes file's place, nil but in replace
	size  int      // of what lease read
}

// lock locks an owner's file, and makes it where flags have os.O_CREATE. how
// is unix.LOCK_EX, or with unix.LOCK_NB to get errBusy instead of waiting.
func (s *Store) lock(name string, flags, how int) (*owner, error) {
	for {
		f, err := s.owners.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|flags, modeFile)
		if err != nil {
			return nil, err
		}
		// Whoever waited may have got the lock of a file that lost its name
		// meanwhile, which locks nothing.
		named, err := s.locked(f, name, how)
		if named {
			return &owner{store: s, name: name, file: f}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func (s *Store) locked(f *os.File, name string, how int) (named bool, err error) {
	if err := flock(f, how); err != nil {
		return false, err
	}
	ours, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := s.owners.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !there.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no file: remove it", s.owners.Name()+"/"+name)
	}
	return os.SameFile(ours, there), nil
}

func flock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return errBusy
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// close drops the lock, as the kernel does for who is killed.
func (o *owner) close() {
	o.file.Close()
	if o.next != nil {
		o.next.Close()
	}
}

// lease is what the file says, whether or not the addresses are held; errTorn
// where it is no lease.
func (o *owner) lease() (Lease, error) {
	data, err := readAll(o.file)
	if err != nil {
		return Lease{}, err
	}
	o.size = len(data)
	return decode(data, o.name, o.store.boot)
}

// held is the lease; living says that it counts. One that does not may still
// have some of its addresses.
func (o *owner) held() (l Lease, living bool, err error) {
	l, err = o.lease()
	if errors.Is(err, errTorn) {
		return Lease{}, false, nil
	}
	if err != nil {
		return Lease{}, false, err
	}
	living, err = o.store.holds(o.name, l)
	return l, living, err
}

// readAll reads a file from its start, and no more than shows that it is too
// long.
func readAll(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, maxFile+1))
}

// empty removes what lease read. A file that is empty is left alone: ext4
// writes one that was cut to nothing to the disk as soon as it is closed
// (auto_da_alloc in Documentation/admin-guide/ext4.rst).
func (o *owner) empty() error {
	if o.size == 0 {
		return nil
	}
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	o.store.did("emptied")
	return nil
}

// write writes the lease into the empty file. Until it is whole it is none.
func (o *owner) write(data []byte) error {
	if _, err := o.file.WriteAt(data, 0); err != nil {
		return err
	}
	o.store.did("written")
	return nil
}

// replace gives the file's name to a new one, which is locked before it can be
// seen, so that the lock is never lost. Where it fails, the file is as it was.
func (o *owner) replace(data []byte) (err error) {
	name := o.name + newSuffix
	o.next, err = o.store.owners.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, modeFile)
	if err != nil {
		return err
	}
	o.store.did("new file made")
	if err := o.fillNext(data); err != nil {
		return errors.Join(err, o.store.owners.Remove(name))
	}
	if err := o.store.owners.Rename(name, o.name); err != nil {
		return errors.Join(err, o.store.owners.Remove(name))
	}
	o.store.did("new file named")
	o.file.Close()
	o.file, o.next = o.next, nil
	return nil
}

func (o *owner) fillNext(data []byte) error {
	if err := flock(o.next, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if _, err := o.next.WriteAt(data, 0); err != nil {
		return err
	}
	o.store.did("new file written")
	return nil
}

// claim makes the address this owner's, which it may have been; false says
// that it is another's.
func (o *owner) claim(a netip.Addr) (ours bool, err error) {
	err = o.store.links.Symlink(target(o.name), a.String())
	if errors.Is(err, fs.ErrExist) {
		who, err := o.store.holder(a.String())
		return who == o.name, err
	}
	if err != nil {
		return false, fmt.Errorf("claim address %s: %w", a, linkError(err))
	}
	o.store.did("claimed")
	return true, nil
}

// unclaim frees the addresses that are this owner's and returns which were.
func (o *owner) unclaim(list []netip.Addr) (freed []netip.Addr, err error) {
	for _, a := range list {
		who, err := o.store.holder(a.String())
		if err != nil {
			return freed, fmt.Errorf("free address %s: %w", a, err)
		}
		if who != o.name {
			continue
		}
		if err := o.store.links.Remove(a.String()); err != nil {
			return freed, fmt.Errorf("free address %s: %w", a, err)
		}
		o.store.did("unclaimed")
		freed = append(freed, a)
	}
	return freed, nil
}

// clear frees the addresses and removes the owner's files. The one that has the
// name goes last: until then all that is left can be found by it.
func (o *owner) clear(list []netip.Addr) (freed []netip.Addr, err error) {
	freed, err = o.unclaim(list)
	if err != nil {
		return freed, err
	}
	if err := o.removeLitter(); err != nil {
		return freed, err
	}
	if err := o.store.owners.Remove(o.name); err != nil {
		return freed, err
	}
	o.store.did("removed")
	return freed, nil
}

// removeLitter removes what a replacement that was killed has left.
func (o *owner) removeLitter() error {
	err := o.store.owners.Remove(o.name + newSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// without is a without what is in b.
func without(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}
