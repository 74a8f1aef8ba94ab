package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// maxList is the longest text that Parse reads. A list of MaxCPUs that the
// kernel writes has less than 3000 bytes.
const maxList = 8192

// Parse reads the kernel's list of CPUs (cpuset(7), "List format"), such as
// "0-3,7", as it stands in cpuset.cpus, with or without a line's end. No text
// is the empty set. The kernel's groups ("0-31:2/4") are refused: it takes
// them, but writes none.
func Parse(text string) (Set, error) {
	if len(text) > maxList {
		return Set{}, fmt.Errorf("a list of CPUs has %d bytes: at most %d are read", len(text), maxList)
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
			return Set{}, fmt.Errorf("list of CPUs %q: %w", text, err)
		}
		last := first
		if isRange {
			if last, err = number(to); err != nil {
				return Set{}, fmt.Errorf("list of CPUs %q: %w", text, err)
			}
		}
		if first > last {
			return Set{}, fmt.Errorf("list of CPUs %q: the range %q runs backwards", text, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			s = s.Union(setOf(cpu))
		}
	}
	return s, nil
}

// number reads digits alone: strconv would take signs.
func number(text string) (int, error) {
	if text == "" {
		return 0, fmt.Errorf("a number is missing")
	}
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is no number of a CPU", text)
		}
		if n = 10*n + int(c-'0'); n >= MaxCPUs {
			return 0, fmt.Errorf("%q is no number of a CPU: the highest is %d", text, MaxCPUs-1)
		}
	}
	return n, nil
}

// String is the kernel's list of the set, in its shortest form; "" for the
// empty set.
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

// MarshalText writes the set as its list.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the set from a list.
func (s *Set) UnmarshalText(text []byte) error {
	read, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = read
	return nil
}
