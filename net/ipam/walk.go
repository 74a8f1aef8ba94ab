package ipam

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// walk iterates over the addresses of a range, each once. The key determines both the
// start and the step. In a range of which nine tenths are allocated, it finds a free
// address after about ten steps. With a step of one it would take about fifty, because
// allocated addresses would then be adjacent.
type walk struct {
	first           netip.Addr
	size, remaining uint64
	at, step        uint64
}

// newWalk returns a walk over a complete range.
func newWalk(r Range, key string) walk {
	sum := sha256.Sum256([]byte(key))
	w := walk{first: r.First, size: distance(r.First, r.Last) + 1}
	w.remaining = w.size
	w.at = binary.BigEndian.Uint64(sum[:]) % w.size
	w.step = 1
	if w.size > 2 {
		w.step += binary.BigEndian.Uint64(sum[8:]) % (w.size - 1)
	}
	// A step reaches all addresses only if it is coprime to their number.
	for gcd(w.step, w.size) != 1 {
		w.step = w.step%(w.size-1) + 1
	}
	return w
}

// next returns the next address; ok is false after the last.
func (w *walk) next() (a netip.Addr, ok bool) {
	if w.remaining == 0 {
		return netip.Addr{}, false
	}
	w.remaining--
	a = addOffset(w.first, w.at)
	w.at = (w.at + w.step) % w.size
	return a, true
}

// gcd returns the greatest common divisor.
func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
