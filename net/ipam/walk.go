package ipam

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// walk goes once over the addresses of a range. Where it begins and how far it
// steps both come from the key: in a range that is nine tenths full it meets a
// free address after about ten steps, where going from one to the next it
// would be fifty, for taken ones then lie together.
type walk struct {
	first      netip.Addr
	size, left uint64
	at, step   uint64
}

// newWalk begins a walk over a complete range.
func newWalk(r Range, key string) walk {
	sum := sha256.Sum256([]byte(key))
	w := walk{first: r.First, size: span(r.First, r.Last) + 1}
	w.left = w.size
	w.at = binary.BigEndian.Uint64(sum[:]) % w.size
	w.step = 1
	if w.size > 2 {
		w.step += binary.BigEndian.Uint64(sum[8:]) % (w.size - 1)
	}
	// Only a step without a common divisor comes by all of them.
	for divisor(w.step, w.size) != 1 {
		w.step = w.step%(w.size-1) + 1
	}
	return w
}

// next is the next address; ok is false after the last.
func (w *walk) next() (a netip.Addr, ok bool) {
	if w.left == 0 {
		return netip.Addr{}, false
	}
	w.left--
	a = plus(w.first, w.at)
	w.at = (w.at + w.step) % w.size
	return a, true
}

// divisor is the greatest common one.
func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
