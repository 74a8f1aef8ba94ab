package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Release frees the lease of the owner and returns it. ok is false if there was none. If
// an earlier Release was killed, the returned lease has only the addresses that were still
// reserved; the others may belong to another owner. An address may be allocated to another
// owner before Release returns. So the caller must first remove what uses the lease that
// Get returns.
func (s *Store) Release(owner string) (l Lease, ok bool, err error) {
	l, ok, err = s.release(owner)
	if err != nil {
		return Lease{}, false, fmt.Errorf("release lease of %.200q: %w", owner, err)
	}
	return l, ok, nil
}

func (s *Store) release(owner string) (Lease, bool, error) {
	o, err := s.lock(fileName(owner), 0, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return Lease{}, false, nil
	}
	if err != nil {
		return Lease{}, false, err
	}
	defer o.close()
	l, err := o.lease()
	if errors.Is(err, errInvalid) {
		return o.releaseIncomplete(owner)
	}
	if err != nil {
		return Lease{}, false, err
	}
	l.Addresses, err = o.remove(l.Addresses)
	return l, true, err
}

// releaseIncomplete frees the addresses that a killed Allocate has reserved. Only the links
// record them.
func (o *ownerFile) releaseIncomplete(owner string) (Lease, bool, error) {
	// Collect reports foreign files in the directory of the links.
	all, _ := o.store.reservations()
	freed, err := o.remove(all[o.name])
	return Lease{Owner: owner, Boot: o.store.boot, Addresses: freed}, len(freed) > 0, err
}

// SetDetail replaces the detail of the owner's lease atomically. The error wraps
// fs.ErrNotExist if the owner has no lease.
func (s *Store) SetDetail(owner string, detail []byte) error {
	if err := s.setDetail(owner, detail); err != nil {
		return fmt.Errorf("set detail of lease of %.200q: %w", owner, err)
	}
	return nil
}

func (s *Store) setDetail(owner string, detail []byte) error {
	o, err := s.lock(fileName(owner), 0, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer o.close()
	l, valid, err := o.current()
	switch {
	case err != nil:
		return err
	case !valid:
		return fs.ErrNotExist
	case bytes.Equal(l.Detail, detail):
		return nil
	}
	l.Detail = detail
	data, err := l.encode()
	if err != nil {
		return err
	}
	return o.replace(data)
}
