package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Memory is what a group and all below it use, in bytes.
type Memory struct {
	// Current is all memory charged to the group, page cache included.
	Current uint64
	// WorkingSet is Current without the file pages that nobody used lately:
	// what could not be reclaimed at once. It is the kubelet's measure.
	WorkingSet uint64
}

// MemoryCurrent reads memory.current, in bytes. A group that does not exist
// gives ErrNotFound, one without the memory controller ErrController. It
// allocates only the path.
func (t *Tree) MemoryCurrent(path string) (uint64, error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	return memoryCurrent(dir)
}

// MemoryMin reads memory.min, in bytes, the largest number where it is "max",
// with the promises of MemoryCurrent.
func (t *Tree) MemoryMin(path string) (uint64, error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	var buf [32]byte
	n, err := read(dir+"/"+fileMemoryMin, buf[:])
	if err != nil {
		return 0, err
	}
	var f Figure
	if !parseLimit(bytes.TrimSpace(buf[:n]), &f) {
		return 0, fmt.Errorf("read %s/%s: %q is not a number", dir, fileMemoryMin, buf[:n])
	}
	return f.Value, nil
}

// Memory reads memory.current and memory.stat, with the promises of
// MemoryCurrent.
func (t *Tree) Memory(path string) (Memory, error) {
	dir, err := t.dir(path)
	if err != nil {
		return Memory{}, err
	}
	current, err := memoryCurrent(dir)
	if err != nil {
		return Memory{}, err
	}
	inactive, err := statValue(dir, "inactive_file")
	if err != nil {
		return Memory{}, err
	}
	return Memory{Current: current, WorkingSet: current - min(inactive, current)}, nil
}

func memoryCurrent(dir string) (uint64, error) {
	var buf [32]byte
	n, err := read(dir+"/"+fileMemory, buf[:])
	if err != nil {
		return 0, err
	}
	value, ok := number(bytes.TrimSpace(buf[:n]))
	if !ok {
		return 0, fmt.Errorf("read %s/%s: %q is not a number", dir, fileMemory, buf[:n])
	}
	return value, nil
}

// OwnOOM is how often the limit of the group itself, not of one below it, could
// not be kept since it was made (memory.events.local; since Linux 5.2). Its
// promises are those of MemoryCurrent.
func (t *Tree) OwnOOM(path string) (uint64, error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	var buf [512]byte // a line of a word and a number for each of six events
	n, err := read(dir+"/"+fileOwnEvents, buf[:])
	if err != nil {
		return 0, err
	}
	value, ok := lookup(buf[:n], "oom")
	if !ok {
		return 0, fmt.Errorf("read %s/%s: no number for oom", dir, fileOwnEvents)
	}
	return value, nil
}

// statSize is more than twice memory.stat's length in Linux 6.18.
const statSize = 8192

func statValue(dir, key string) (uint64, error) {
	var buf [statSize]byte
	n, err := read(dir+"/"+fileMemoryStat, buf[:])
	if err != nil {
		return 0, err
	}
	value, ok := lookup(buf[:n], key)
	if !ok {
		return 0, fmt.Errorf("read %s/%s: no number for %s", dir, fileMemoryStat, key)
	}
	return value, nil
}

// lookup finds a key's value in lines of "key value".
func lookup(stat []byte, key string) (uint64, bool) {
	for len(stat) > 0 {
		line := stat
		if i := bytes.IndexByte(stat, '\n'); i >= 0 {
			line, stat = stat[:i], stat[i+1:]
		} else {
			stat = nil
		}
		if len(line) > len(key) && string(line[:len(key)]) == key && line[len(key)] == ' ' {
			return number(line[len(key)+1:])
		}
	}
	return 0, false
}

// number reads an unsigned decimal without allocating.
func number(digits []byte) (uint64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' || n > (1<<64-1)/10 {
			return 0, false
		}
		next := n*10 + uint64(c-'0')
		if next < n {
			return 0, false
		}
		n = next
	}
	return n, true
}

// read fills buf from the start of a small file of the kernel's.
func read(file string, buf []byte) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("read %s: %w", file, whyMissing(file))
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if errors.Is(err, unix.ENODEV) { // deleted since it was opened
			return 0, fmt.Errorf("read %s: %w", file, ErrNotFound)
		}
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// whyMissing tells a group that is not there from one whose controller is
// off.
func whyMissing(file string) error {
	if _, err := os.Lstat(filepath.Dir(file)); err == nil {
		return ErrController
	}
	return ErrNotFound
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
