package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Release frees the lease of the owner, if there is one. An address may be allocated to
// another owner before Release returns. So the caller must first remove what uses the lease
// that Get returns.
func (s *Store) Release(owner string) error {
	if err := s.release(owner); err != nil {
		return fmt.Errorf("release lease of %.200q: %w", owner, err)
	}
	return nil
}

func (s *Store) release(owner string) error {
	o, err := s.lock(fileName(owner), 0, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer o.close()
	l, err := o.lease()
	if errors.Is(err, errInvalid) {
		// Only the links record the addresses that a killed Allocate has reserved. Collect
		// reports foreign files in their directory.
		all, _ := s.reservations()
		return o.remove(all[o.name])
	}
	if err != nil {
		return err
	}
	return o.remove(l.Addresses)
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
