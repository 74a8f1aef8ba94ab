package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads the stats of one cgroup after another into one buffer. Only one goroutine
// may use it at a time. It keeps no file open between two reads.
//
// It reads all stats of 30 pods with two containers each with 5 allocations and 74 kB, of
// which 66 kB are the result. The library's Manager.StatFiltered takes three times as
// long, 22410 allocations and 3.7 MB (amd64), does not distinguish an unknown value from
// 0, and returns no error for a cgroup that was removed meanwhile.
type Reader struct {
	root string
	path []byte // of the last cgroup, with a zero byte at the end
	buf  []byte
}

// NewReader returns a Reader of the hierarchy. It does not read.
func (t *Tree) NewReader() *Reader {
	return &Reader{root: t.root, buf: make([]byte, statSize)}
}

// maxFile is the length of the longest file that is read. io.stat has about a hundred
// bytes for each disk.
const maxFile = 256 << 10

// gone is ErrNotFound and fs.ErrNotExist. A cgroup that is removed while it is read is
// no fault, so callers that read many must be able to distinguish it.
type gone struct{}

func (gone) Error() string { return ErrNotFound.Error() }

func (gone) Is(target error) bool { return target == ErrNotFound || target == fs.ErrNotExist }

// sources are the files with their parts and their parsers. The names end with a zero
// byte for the kernel, so that opening them does not allocate.
var sources = [...]struct {
	part  Parts
	name  string
	parse func(data []byte, f *Stats) bool
}{
	{PartCPU, "cpu.stat\x00", func(d []byte, f *Stats) bool { return parseCPU(d, &f.CPU) }},
	{PartMemory, fileMemory + "\x00", func(d []byte, f *Stats) bool { return parseSingle(d, &f.Memory.Current) }},
	{PartMemoryMax, fileMemoryMax + "\x00", func(d []byte, f *Stats) bool { return parseLimit(d, &f.Memory.Max) }},
	{PartMemory, fileMemoryStat + "\x00", func(d []byte, f *Stats) bool { return parseMemory(d, &f.Memory) }},
	{PartSwap, "memory.swap.current\x00", func(d []byte, f *Stats) bool { return parseSingle(d, &f.Memory.SwapCurrent) }},
	{PartSwap, "memory.swap.max\x00", func(d []byte, f *Stats) bool { return parseLimit(d, &f.Memory.SwapMax) }},
	{PartEvents, "memory.events\x00", func(d []byte, f *Stats) bool { return parseEvents(d, &f.Events) }},
	{PartPids, "pids.current\x00", func(d []byte, f *Stats) bool { return parseSingle(d, &f.Pids) }},
	{PartIO, "io.stat\x00", func(d []byte, f *Stats) bool { return parseIO(d, &f.IO) }},
	{PartPressure, "cpu.pressure\x00", func(d []byte, f *Stats) bool { return parsePressure(d, &f.CPUPressure) }},
	{PartPressure, "memory.pressure\x00", func(d []byte, f *Stats) bool { return parsePressure(d, &f.MemoryPressure) }},
	{PartPressure, "io.pressure\x00", func(d []byte, f *Stats) bool { return parsePressure(d, &f.IOPressure) }},
}

// Read reads the parts of the cgroup at path, below the root as in Tree, and overwrites
// into. Stats without a file are not known, and neither are pressures if the kernel was
// started with psi=0. For a cgroup that does not exist, or that is removed meanwhile, it
// returns an error that is both ErrNotFound and fs.ErrNotExist. After an error the
// content of into is undefined. It blocks only on the kernel, and allocates only for
// errors and for files longer than any before.
func (r *Reader) Read(path string, parts Parts, into *Stats) error {
	*into = Stats{}
	rel, err := relative(path)
	if err != nil {
		return err
	}
	r.path = append(append(append(append(r.path[:0], r.root...), '/'), rel...), 0)
	dir, err := openat(unix.AT_FDCWD, &r.path[0], unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return r.failed("", err)
	}
	defer unix.Close(dir)
	missing := false
	for i := range sources {
		s := &sources[i]
		if s.part&parts == 0 {
			continue
		}
		data, err := r.file(dir, s.name)
		switch {
		case err == nil:
			if !s.parse(data, into) {
				return r.failed(s.name, fmt.Errorf("unexpected text %.80q", data))
			}
		case errors.Is(err, unix.ENOENT):
			missing = true
		case errors.Is(err, unix.EOPNOTSUPP): // pressure, disabled at boot
		default:
			return r.failed(s.name, err)
		}
	}
	if !missing {
		return nil
	}
	// A file may be missing because its controller is not enabled, or because the cgroup
	// of the open directory was removed. This file is in every cgroup.
	fd, err := openat(dir, unsafe.StringData(fileControllers+"\x00"), unix.O_PATH)
	if err != nil {
		return r.failed(fileControllers+"\x00", err)
	}
	unix.Close(fd)
	return nil
}

// failed returns the error for a file or, if name is "", for the cgroup.
func (r *Reader) failed(name string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		err = gone{}
	}
	group := r.path[:len(r.path)-1]
	if name == "" {
		return fmt.Errorf("read cgroup %s: %w", group, err)
	}
	return fmt.Errorf("read cgroup %s: %s: %w", group, name[:len(name)-1], err)
}

// file reads a file of the open cgroup into the buffer, where it is valid until the next
// read.
func (r *Reader) file(dir int, name string) ([]byte, error) {
	fd, err := openat(dir, unsafe.StringData(name), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(r.buf) {
			if n >= maxFile {
				return nil, fmt.Errorf("longer than %d bytes", maxFile)
			}
			r.buf = append(r.buf, make([]byte, n)...)
		}
		m, err := unix.Read(fd, r.buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		n += m
		// The kernel returns such a file in one read if it fits. So text that ends with
		// a line and leaves space is all of it.
		if m == 0 || n < len(r.buf) && r.buf[n-1] == '\n' {
			return r.buf[:n], nil
		}
	}
}

// openat is unix.Openat for a name that ends with a zero byte.
func openat(dir int, name *byte, flags int) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(name)),
			uintptr(flags|unix.O_CLOEXEC|unix.O_NOFOLLOW), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
			continue
		default:
			return -1, errno
		}
	}
}
