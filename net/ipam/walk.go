package ipam

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"net/netip"
)

// walk iterates over the addresses of a range, each once. The key determines both the
// start and the step. In a range of which nine tenths are allocated, it finds a free
// address after about ten steps. With a step of one it would take about fifty, because
// allocated addresses would then be adjacent.
func (r Range) walk(key string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		sum, size := sha256.Sum256([]byte(key)), r.size()
		at := binary.BigEndian.Uint64(sum[:]) % size
		step := binary.BigEndian.Uint64(sum[8:])%(size-1) + 1
		// A step reaches all addresses only if it is coprime to their number.
		for gcd(step, size) != 1 {
			step = step%(size-1) + 1
		}
		for range size {
			if !yield(r.host(at)) {
				return
			}
			at = (at + step) % size
		}
	}
}

// gcd returns the greatest common divisor.
func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
