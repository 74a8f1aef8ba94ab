package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// maxList is the maximum number of bytes that Parse accepts. A list of MaxCPUs as the
// kernel writes it has fewer than 3000 bytes.
const maxList = 8192

// Parse parses the kernel's CPU list format (cpuset(7), "List format"), such as
// "0-3,7", as in cpuset.cpus, with or without a trailing newline. An empty text is
// the empty set. The kernel's group syntax ("0-31:2/4") is rejected: the kernel
// accepts it but never writes it.
func Parse(text string) (Set, error) {
	if len(text) > maxList {
		return Set{}, fmt.Errorf("CPU list has %d bytes, at most %d are allowed", len(text), maxList)
	}
	list := strings.TrimSuffix(text, "\n")
	if list == "" {
		return Set{}, nil
	}
	var s Set
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := number(from)
		if err != nil {
			return Set{}, fmt.Errorf("parse CPU list %q: %w", text, err)
		}
		last := first
		if isRange {
			if last, err = number(to); err != nil {
				return Set{}, fmt.Errorf("parse CPU list %q: %w", text, err)
			}
		}
		if first > last {
			return Set{}, fmt.Errorf("parse CPU list %q: range %q is reversed", text, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			s = s.Union(setOf(cpu))
		}
	}
	return s, nil
}

// number parses digits only; strconv would accept signs.
func number(text string) (int, error) {
	if text == "" {
		return 0, fmt.Errorf("missing CPU number")
	}
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not a CPU number", text)
		}
		if n = 10*n + int(c-'0'); n >= MaxCPUs {
			return 0, fmt.Errorf("%q is not a CPU number: the highest is %d", text, MaxCPUs-1)
		}
	}
	return n, nil
}

// String returns the set in the kernel's list format, in its shortest form; "" for
// the empty set.
func (s Set) String() string {
	var b []byte
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(first), 10)
		if last > first {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
	}
	for cpu := range s.All() {
		if first >= 0 && cpu == last+1 {
			last = cpu
			continue
		}
		flush()
		first, last = cpu, cpu
	}
	flush()
	return string(b)
}

// MarshalText encodes the set in the list format.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes a set from the list format.
func (s *Set) UnmarshalText(text []byte) error {
	read, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = read
	return nil
}
