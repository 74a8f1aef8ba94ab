package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Request is a request for a lease.
type Request struct {
	// Owner identifies the owner, such as a container ID with an interface name. It is
	// any UTF-8 text except "".
	Owner string
	// Key identifies the pod across reboots, such as its UID, so that the pod tends to
	// get the same address again. "" is the owner.
	Key string
	// Pod describes the pod to people, such as namespace/name.
	Pod string
	// Ranges are the ranges of the addresses. The lease has one address of each.
	Ranges []Range
	// Addresses, if not empty, are exactly the addresses of the lease. Each must be in
	// one of the ranges.
	Addresses []netip.Addr
	// Detail is data of the caller that is stored in the lease.
	Detail []byte
}

// Allocate returns the lease of the owner. An existing lease whose addresses match the
// request is returned unchanged, with its detail. Otherwise a new lease replaces it, and
// keeps the addresses that match. The error may be ErrExhausted, ErrAllocated, an invalid
// request or an error of the file system. After an error the existing lease is unchanged.
func (s *Store) Allocate(r Request) (Lease, error) {
	l, err := s.allocate(r)
	if err != nil {
		return Lease{}, fmt.Errorf("allocate address for %.200q: %w", r.Owner, err)
	}
	return l, nil
}

func (s *Store) allocate(r Request) (Lease, error) {
	if err := r.complete(); err != nil {
		return Lease{}, err
	}
	o, err := s.lock(fileName(r.Owner), os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return Lease{}, err
	}
	defer o.close()
	s.did("locked")
	existing, valid, err := o.current()
	if err != nil {
		return Lease{}, err
	}
	if valid && r.fits(existing) {
		return existing, nil
	}
	if valid {
		return o.reallocate(r, existing)
	}
	return o.create(r, existing)
}

// create creates the lease of an owner that has no valid one. incomplete is the lease
// that a killed Release has left.
func (o *ownerFile) create(r Request, incomplete Lease) (Lease, error) {
	if err := o.free(incomplete.Addresses); err != nil {
		return Lease{}, err
	}
	// If the same addresses were reserved again, the old content would be a valid lease.
	if err := o.truncate(); err != nil {
		return Lease{}, err
	}
	l, data, err := o.allocate(r, nil)
	if err == nil {
		err = o.write(data)
	}
	if err != nil {
		return Lease{}, errors.Join(err, o.remove(l.Addresses))
	}
	return l, nil
}

// reallocate replaces a valid lease that does not match the request.
func (o *ownerFile) reallocate(r Request, existing Lease) (Lease, error) {
	l, data, err := o.allocate(r, existing.Addresses)
	if err == nil {
		err = o.replace(data)
	}
	if err != nil {
		return Lease{}, errors.Join(err, o.free(difference(l.Addresses, existing.Addresses)))
	}
	// The new lease exists. Collect frees the addresses that cannot be freed now.
	_ = o.free(difference(existing.Addresses, l.Addresses))
	return l, nil
}

// allocate reserves the addresses and encodes the lease. existing are addresses of the
// owner to use again. After an error, the lease has the addresses that are reserved.
func (o *ownerFile) allocate(r Request, existing []netip.Addr) (Lease, []byte, error) {
	l := Lease{Owner: r.Owner, Key: r.Key, Pod: r.Pod, Boot: o.store.boot, Time: time.Now().UTC().Round(0), Detail: r.Detail}
	for _, a := range r.Addresses {
		if err := o.reserveRequested(a); err != nil {
			return l, nil, err
		}
		l.Addresses = append(l.Addresses, a)
	}
	for i := 0; i < len(r.Ranges) && len(r.Addresses) == 0; i++ {
		a, err := o.reserveFrom(r.Ranges[i], r.Key, existing, l.Addresses)
		if err != nil {
			return l, nil, err
		}
		l.Addresses = append(l.Addresses, a)
	}
	data, err := l.encode()
	return l, data, err
}

// reserveRequested reserves exactly this address.
func (o *ownerFile) reserveRequested(a netip.Addr) error {
	ours, err := o.reserve(a)
	if err == nil && !ours {
		ours, err = o.reserveStale(a)
	}
	if err != nil || ours {
		return err
	}
	return ErrAllocated{Address: a, Owner: o.store.ownerOf(a)}
}

// reserveFrom reserves an address of the range that is not in chosen, the addresses for
// other ranges. It prefers an existing address of the owner, then the first free one.
// Only if there is none does it search for addresses that killed calls have left.
func (o *ownerFile) reserveFrom(r Range, key string, existing, chosen []netip.Addr) (netip.Addr, error) {
	for _, a := range existing {
		if r.allocatable(a) && !slices.Contains(chosen, a) {
			return a, nil
		}
	}
	if key == "" {
		key = o.name
	}
	a, err := o.reserveFirst(r, key, chosen, o.reserve)
	if errors.As(err, new(ErrExhausted)) {
		return o.reserveFirst(r, key, chosen, o.reserveStale)
	}
	return a, err
}

// reserveFirst calls reserve with the addresses of the range until it succeeds.
func (o *ownerFile) reserveFirst(r Range, key string, chosen []netip.Addr, reserve func(netip.Addr) (bool, error)) (netip.Addr, error) {
	leased := 0
	for a := range r.walk(key) {
		if !r.allocatable(a) {
			continue
		}
		leased++
		if slices.Contains(chosen, a) {
			continue
		}
		if ours, err := reserve(a); err != nil || ours {
			return a, err
		}
	}
	return netip.Addr{}, ErrExhausted{Range: r, Leases: leased}
}

// complete validates the request and completes its ranges.
func (r *Request) complete() error {
	switch {
	case r.Owner == "":
		return errors.New("request has no Owner")
	case len(r.Ranges) == 0 || len(r.Ranges) > maxAddresses:
		return fmt.Errorf("%d address ranges: a request has 1 to %d", len(r.Ranges), maxAddresses)
	}
	err := errors.Join(checkUTF8("owner", r.Owner), checkUTF8("key", r.Key), checkUTF8("pod", r.Pod))
	if err != nil {
		return err
	}
	ranges := make([]Range, len(r.Ranges))
	for i, given := range r.Ranges {
		if ranges[i], err = given.Complete(); err != nil {
			return err
		}
	}
	r.Ranges = ranges
	return r.checkRequested()
}

func (r *Request) checkRequested() error {
	if len(r.Addresses) == 0 {
		return nil
	}
	for _, a := range r.Addresses {
		if !slices.ContainsFunc(r.Ranges, func(g Range) bool { return g.allocatable(a) }) {
			return fmt.Errorf("address %s cannot be allocated from the ranges", a)
		}
	}
	return checkAddresses(r.Addresses)
}

// fits reports whether the addresses of a lease match the completed request.
func (r *Request) fits(l Lease) bool {
	if len(r.Addresses) > 0 {
		return slices.Equal(r.Addresses, l.Addresses)
	}
	return slices.EqualFunc(r.Ranges, l.Addresses, Range.allocatable)
}
