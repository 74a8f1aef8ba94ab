package policy

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"k8s.io/utils/cpuset"
)

// Set is a set of CPU numbers below MaxCPUs. Compare sets with Equal: cpuset's
// Equals distinguishes two forms of the empty set.
type Set = cpuset.CPUSet

// MaxCPUs is the number of CPUs that sets may have. It equals glibc's CPU_SETSIZE.
const MaxCPUs = 1024

// maxList is the maximum number of bytes that Parse accepts. A list of MaxCPUs as the
// kernel writes it has fewer than 3000 bytes.
const maxList = 8192

// listPattern matches what the kernel writes. cpuset.Parse accepts signs as well, and
// numbers for which it would take gigabytes.
var listPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$`)
})

// Parse parses the kernel's CPU list format (cpuset(7), "List format"), such as
// "0-3,7", as in cpuset.cpus, with or without a trailing newline. An empty text is
// the empty set. The kernel's group syntax ("0-31:2/4") is rejected: the kernel
// accepts it but never writes it.
func Parse(text string) (Set, error) {
	if len(text) > maxList {
		return Set{}, fmt.Errorf("CPU list has %d bytes, at most %d are allowed", len(text), maxList)
	}
	list := strings.TrimSuffix(text, "\n")
	if list != "" && !listPattern().MatchString(list) {
		return Set{}, fmt.Errorf("parse CPU list %q: not a list of CPU numbers", text)
	}
	s, err := cpuset.Parse(list)
	if err != nil {
		return Set{}, fmt.Errorf("parse CPU list %q: %w", text, err)
	}
	for _, cpu := range s.UnsortedList() {
		if cpu >= MaxCPUs {
			return Set{}, fmt.Errorf("parse CPU list %q: the highest is %d", text, MaxCPUs-1)
		}
	}
	return s, nil
}

// Equal reports whether two sets have the same CPUs.
func Equal(a, b Set) bool { return a.Size() == b.Size() && a.IsSubsetOf(b) }
