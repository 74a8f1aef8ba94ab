package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Release frees what the owner has and returns it; false says that there was
// nothing. Where an earlier Release was killed, the lease has only those
// addresses that it had left: the others may be somebody else's by now. An
// address may be given to another before Release returns, so tear down what
// hangs on it first, by Get.
func (s *Store) Release(owner string) (Lease, bool, error) {
	l, held, err := s.release(owner)
	if err != nil {
		return Lease{}, false, fmt.Errorf("release the lease of %.200q: %w", owner, err)
	}
	return l, held, nil
}

func (s *Store) release(owner string) (Lease, bool, error) {
	o, err := s.lock(nameOf(owner), 0, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return Lease{}, false, nil
	}
	if err != nil {
		return Lease{}, false, err
	}
	defer o.close()
	l, err := o.lease()
	if errors.Is(err, errTorn) {
		return o.releaseHalf(owner)
	}
	if err != nil {
		return Lease{}, false, err
	}
	l.Addresses, err = o.clear(l.Addresses)
	return l, true, err
}

// releaseHalf frees what a killed Take claimed. Only the links tell.
func (o *owner) releaseHalf(owner string) (Lease, bool, error) {
	// What is in the way there is Collect's to tell of.
	claims, _ := o.store.claims()
	freed, err := o.clear(claims[o.name])
	return Lease{Owner: owner, Boot: o.store.boot, Addresses: freed}, len(freed) > 0, err
}

// Amend replaces the detail of the owner's lease, at once or not at all. The
// error is fs.ErrNotExist where the owner has none.
func (s *Store) Amend(owner string, detail []byte) error {
	if err := s.amend(owner, detail); err != nil {
		return fmt.Errorf("amend the lease of %.200q: %w", owner, err)
	}
	return nil
}

func (s *Store) amend(owner string, detail []byte) error {
	o, err := s.lock(nameOf(owner), 0, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer o.close()
	l, living, err := o.held()
	switch {
	case err != nil:
		return err
	case !living:
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
