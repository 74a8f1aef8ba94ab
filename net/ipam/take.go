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

// Request says who wants which addresses.
type Request struct {
	// Owner is whose the lease is, such as a container's ID and interface:
	// any text in UTF-8 that is not "".
	Owner string
	// Key is of the pod and stays the same over reboots, such as its UID, so
	// that its address tends to; "" is the owner.
	Key string
	// Pod says whose it is to people, such as namespace/name.
	Pod string
	// Ranges are where addresses come from: one of each.
	Ranges []Range
	// Wanted, unless it is empty, are the addresses, exactly these: each has
	// to be in one of the ranges.
	Wanted []netip.Addr
	// Detail is kept with the lease.
	Detail []byte
}

// Take gives the owner a lease. Who has one gets it back as it is, detail
// included, if its addresses fit the request; else it gets another in its
// place, and keeps those addresses that still fit. Errors are ErrExhausted,
// ErrTaken, what is wrong with the request, or the file system's; after any of
// them the owner has what it had before.
func (s *Store) Take(r Request) (Lease, error) {
	l, err := s.take(r)
	if err != nil {
		return Lease{}, fmt.Errorf("take an address for %.200q: %w", r.Owner, err)
	}
	return l, nil
}

func (s *Store) take(r Request) (Lease, error) {
	if err := r.complete(); err != nil {
		return Lease{}, err
	}
	o, err := s.lock(nameOf(r.Owner), os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return Lease{}, err
	}
	defer o.close()
	s.did("locked")
	had, living, err := o.held()
	if err != nil {
		return Lease{}, err
	}
	if living && r.fits(had) {
		return had, nil
	}
	if living {
		return o.move(r, had)
	}
	return o.begin(r, had)
}

// begin makes the lease of an owner that has none; left is what a killed
// Release left of one.
func (o *owner) begin(r Request, left Lease) (Lease, error) {
	if _, err := o.unclaim(left.Addresses); err != nil {
		return Lease{}, err
	}
	// With the same addresses claimed, the old text would be a lease again.
	if err := o.empty(); err != nil {
		return Lease{}, err
	}
	l, data, err := o.choose(r, nil)
	if err == nil {
		err = o.write(data)
	}
	if err != nil {
		_, undo := o.clear(l.Addresses)
		return Lease{}, errors.Join(err, undo)
	}
	return l, nil
}

// move puts another lease in the place of one that no longer fits.
func (o *owner) move(r Request, had Lease) (Lease, error) {
	l, data, err := o.choose(r, had.Addresses)
	if err == nil {
		err = o.replace(data)
	}
	if err != nil {
		_, undo := o.unclaim(without(l.Addresses, had.Addresses))
		return Lease{}, errors.Join(err, undo)
	}
	// The lease is made; what cannot be freed now, Collect will.
	_, _ = o.unclaim(without(had.Addresses, l.Addresses))
	return l, nil
}

// choose claims the addresses and makes the lease's text. With an error, the
// lease has the addresses that are claimed already.
func (o *owner) choose(r Request, had []netip.Addr) (Lease, []byte, error) {
	l := Lease{Owner: r.Owner, Key: r.Key, Pod: r.Pod, Boot: o.store.boot, Time: time.Now().UTC().Round(0), Detail: r.Detail}
	for _, a := range r.Wanted {
		if err := o.want(a); err != nil {
			return l, nil, err
		}
		l.Addresses = append(l.Addresses, a)
	}
	for i := 0; i < len(r.Ranges) && len(r.Wanted) == 0; i++ {
		a, err := o.pick(r.Ranges[i], r.Key, had, l.Addresses)
		if err != nil {
			return l, nil, err
		}
		l.Addresses = append(l.Addresses, a)
	}
	data, err := l.encode()
	return l, data, err
}

// want claims just this address.
func (o *owner) want(a netip.Addr) error {
	ours, err := o.claim(a)
	if err == nil && !ours {
		ours, err = o.reclaim(a)
	}
	if err != nil || ours {
		return err
	}
	return ErrTaken{Address: a, Owner: o.store.ownerOf(a)}
}

// pick claims an address of the range that is not among those chosen for
// another: one that the owner had, or the first that is free. It looks for
// those that nobody living has only where no other is left.
func (o *owner) pick(r Range, key string, had, chosen []netip.Addr) (netip.Addr, error) {
	for _, a := range had {
		if r.gives(a) && !slices.Contains(chosen, a) {
			return a, nil
		}
	}
	if key == "" {
		key = o.name
	}
	a, err := o.first(r, key, chosen, o.claim)
	if errors.As(err, new(ErrExhausted)) {
		return o.first(r, key, chosen, o.reclaim)
	}
	return a, err
}

func (o *owner) first(r Range, key string, chosen []netip.Addr, claim func(netip.Addr) (bool, error)) (netip.Addr, error) {
	w, taken := newWalk(r, key), 0
	for a, ok := w.next(); ok; a, ok = w.next() {
		if !r.gives(a) {
			continue
		}
		taken++
		if slices.Contains(chosen, a) {
			continue
		}
		if ours, err := claim(a); err != nil || ours {
			return a, err
		}
	}
	return netip.Addr{}, ErrExhausted{Range: r, Leases: taken}
}

// complete checks the request and fills in its ranges.
func (r *Request) complete() error {
	switch {
	case r.Owner == "":
		return errors.New("it has no owner")
	case len(r.Ranges) == 0 || len(r.Ranges) > maxAddresses:
		return fmt.Errorf("it has %d address ranges: 1 to %d are possible", len(r.Ranges), maxAddresses)
	}
	err := errors.Join(checkText("owner", r.Owner), checkText("key", r.Key), checkText("pod", r.Pod))
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
	return r.checkWanted()
}

func (r *Request) checkWanted() error {
	if len(r.Wanted) == 0 {
		return nil
	}
	for _, a := range r.Wanted {
		if !slices.ContainsFunc(r.Ranges, func(g Range) bool { return g.gives(a) }) {
			return fmt.Errorf("address %s is none that the ranges give", a)
		}
	}
	return checkAddresses(r.Wanted)
}

// fits says whether a lease is what the complete request asks for.
func (r *Request) fits(l Lease) bool {
	if len(r.Wanted) > 0 {
		return slices.Equal(r.Wanted, l.Addresses)
	}
	if len(l.Addresses) != len(r.Ranges) {
		return false
	}
	for i, a := range l.Addresses {
		if !r.Ranges[i].gives(a) {
			return false
		}
	}
	return true
}
