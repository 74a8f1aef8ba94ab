package policy

import (
	"iter"
	"math/bits"
)

// MaxCPUs is how many CPUs a Set can tell apart: those numbered below it. It
// is what glibc's CPU_SETSIZE allows.
const MaxCPUs = 1024

const wordBits = 64

// Set is a set of CPU numbers from 0 to MaxCPUs-1. It is a value: == compares
// two of them, the zero Set is empty, and nothing changes one but an
// assignment.
type Set struct {
	words [MaxCPUs / wordBits]uint64
}

// setOf is the set of these CPUs, which must be in range.
func setOf(cpus ...int) Set {
	var s Set
	for _, cpu := range cpus {
		s.words[cpu/wordBits] |= 1 << (cpu % wordBits)
	}
	return s
}

// Union is what is in either set.
func (s Set) Union(other Set) Set {
	for i, w := range other.words {
		s.words[i] |= w
	}
	return s
}

// Intersect is what is in both sets.
func (s Set) Intersect(other Set) Set {
	for i, w := range other.words {
		s.words[i] &= w
	}
	return s
}

// Difference is what is in s and not in other.
func (s Set) Difference(other Set) Set {
	for i, w := range other.words {
		s.words[i] &^= w
	}
	return s
}

// Contains says whether the CPU is in the set.
func (s Set) Contains(cpu int) bool {
	return cpu >= 0 && cpu < MaxCPUs && s.words[cpu/wordBits]&(1<<(cpu%wordBits)) != 0
}

// Within says whether all of s is in other.
func (s Set) Within(other Set) bool { return s.Difference(other).IsEmpty() }

// IsEmpty says whether there is no CPU in the set.
func (s Set) IsEmpty() bool { return s == Set{} }

// Len is the number of CPUs in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// All are the CPUs of the set, the lowest first.
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
