package cgroups

import "fmt"

// The functions of this file read one or two files each. The library's
// StatFiltered(StatMemory) opens eight files for the same, with 123 allocations, and
// returns a usage of 0 for a file that cannot be read, so that a memory limit below the
// usage would be written. It does not read memory.min and memory.events.local.

// MemoryCurrent reads memory.current, in bytes: all memory charged to the cgroup and those
// below it, page cache included. It returns ErrNotFound without the
// cgroup, and ErrController without the memory controller. It allocates only the path.
func (t *Tree) MemoryCurrent(path string) (uint64, error) {
	return t.number(path, fileMemory, false)
}

// MemoryMin reads memory.min, in bytes, NoLimit for "max". Errors are as with
// MemoryCurrent.
func (t *Tree) MemoryMin(path string) (uint64, error) {
	return t.number(path, fileMemoryMin, true)
}

// number reads a file of one number, or of "max" if it is a limit.
func (t *Tree) number(path, file string, limit bool) (uint64, error) {
	var buf [32]byte
	name, n, err := t.read(path, file, buf[:])
	if err != nil {
		return 0, err
	}
	var value Number
	if ok := parseLimit(buf[:n], &value); !ok || !limit && value.Value == NoLimit {
		return 0, fmt.Errorf("read %s: %q is not a number", name, buf[:n])
	}
	return value.Value, nil
}

// WorkingSet returns MemoryCurrent without the file pages that were not used recently, so
// what cannot be reclaimed at once. It is the kubelet's measure. Errors are as with
// MemoryCurrent.
func (t *Tree) WorkingSet(path string) (uint64, error) {
	current, err := t.MemoryCurrent(path)
	if err != nil {
		return 0, err
	}
	var buf [statSize]byte
	inactive, err := t.key(path, fileMemoryStat, "inactive_file", buf[:])
	if err != nil {
		return 0, err
	}
	return current - min(inactive, current), nil
}

// LocalOOM reads how often the limit of the cgroup itself, not of one below it, could
// not be kept since it was created (memory.events.local; since Linux 5.2). Errors are as
// with MemoryCurrent.
func (t *Tree) LocalOOM(path string) (uint64, error) {
	var buf [512]byte // six lines of a word and a number
	return t.key(path, fileLocalEvents, "oom", buf[:])
}

// statSize is more than twice the length of memory.stat in Linux 6.18.
const statSize = 8192

// key reads the value of a key in a file of lines of "key value".
func (t *Tree) key(path, file, key string, buf []byte) (uint64, error) {
	name, n, err := t.read(path, file, buf)
	if err != nil {
		return 0, err
	}
	value, ok := lookup(buf[:n], key)
	if !ok {
		return 0, fmt.Errorf("read %s: no number for %s", name, key)
	}
	return value, nil
}
