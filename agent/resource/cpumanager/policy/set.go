package policy

import (
	"iter"
	"math/bits"
)

// MaxCPUs is the capacity of a Set: it holds CPU numbers below MaxCPUs. It equals
// glibc's CPU_SETSIZE.
const MaxCPUs = 1024

const wordBits = 64

// Set is a set of CPU numbers from 0 to MaxCPUs-1. It is a value: compare with ==,
// the zero Set is empty, and its methods do not change it.
type Set struct {
	words [MaxCPUs / wordBits]uint64
}

// setOf returns the set of these CPUs, which must be in range.
func setOf(cpus ...int) Set {
	var s Set
	for _, cpu := range cpus {
		s.words[cpu/wordBits] |= 1 << (cpu % wordBits)
	}
	return s
}

// Union returns the CPUs in either set.
func (s Set) Union(other Set) Set {
	for i, w := range other.words {
		s.words[i] |= w
	}
	return s
}

// Intersect returns the CPUs in both sets.
func (s Set) Intersect(other Set) Set {
	for i, w := range other.words {
		s.words[i] &= w
	}
	return s
}

// Difference returns the CPUs in s and not in other.
func (s Set) Difference(other Set) Set {
	for i, w := range other.words {
		s.words[i] &^= w
	}
	return s
}

// Contains reports whether the CPU is in the set.
func (s Set) Contains(cpu int) bool {
	return cpu >= 0 && cpu < MaxCPUs && s.words[cpu/wordBits]&(1<<(cpu%wordBits)) != 0
}

// IsSubsetOf reports whether s is a subset of other.
func (s Set) IsSubsetOf(other Set) bool { return s.Difference(other).IsEmpty() }

// IsEmpty reports whether the set is empty.
func (s Set) IsEmpty() bool { return s == Set{} }

// Len returns the number of CPUs in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// All iterates over the CPUs of the set in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*wordBits + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}
