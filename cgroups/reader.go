package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads the figures of one group after another into one buffer. It is
// for one goroutine at a time; it holds nothing open between two reads.
type Reader struct {
	root string
	path []byte // of the last group, ended by a zero byte
	buf  []byte
}

// NewReader makes a Reader of the hierarchy. It reads nothing yet.
func (t *Tree) NewReader() *Reader {
	return &Reader{root: t.root, buf: make([]byte, statSize)}
}

// maxFile is the longest file that is read. io.stat grows with the disks, by
// about a hundred bytes for each.
const maxFile = 256 << 10

// gone is a group that does not exist, or no longer. Removing a group while
// it is read is no fault, so whoever reads many has to be able to tell.
type gone struct{}

func (gone) Error() string { return ErrNotFound.Error() }

func (gone) Is(target error) bool { return target == ErrNotFound || target == fs.ErrNotExist }

// sources are the files, their parts and their parsers. The names end with a
// zero byte, as the kernel wants them, so that opening them allocates nothing.
var sources = [...]struct {
	part  Parts
	name  string
	parse func(data []byte, f *Figures) bool
}{
	{PartCPU, "cpu.stat\x00", func(d []byte, f *Figures) bool { return parseKeyed(d, &f.CPU) }},
	{PartMemory, fileMemory + "\x00", func(d []byte, f *Figures) bool { return parseSingle(d, &f.Memory.Current) }},
	{PartMemoryMax, fileMemoryMax + "\x00", func(d []byte, f *Figures) bool { return parseLimit(d, &f.Memory.Max) }},
	{PartMemory, fileMemoryStat + "\x00", func(d []byte, f *Figures) bool { return parseKeyed(d, &f.Memory) }},
	{PartSwap, "memory.swap.current\x00", func(d []byte, f *Figures) bool { return parseSingle(d, &f.Memory.SwapCurrent) }},
	{PartSwap, "memory.swap.max\x00", func(d []byte, f *Figures) bool { return parseLimit(d, &f.Memory.SwapMax) }},
	{PartEvents, "memory.events\x00", func(d []byte, f *Figures) bool { return parseKeyed(d, &f.Events) }},
	{PartPids, "pids.current\x00", func(d []byte, f *Figures) bool { return parseSingle(d, &f.Pids) }},
	{PartIO, "io.stat\x00", func(d []byte, f *Figures) bool { return parseIO(d, &f.IO) }},
	{PartPressure, "cpu.pressure\x00", func(d []byte, f *Figures) bool { return parsePressure(d, &f.CPUPressure) }},
	{PartPressure, "memory.pressure\x00", func(d []byte, f *Figures) bool { return parsePressure(d, &f.MemoryPressure) }},
	{PartPressure, "io.pressure\x00", func(d []byte, f *Figures) bool { return parsePressure(d, &f.IOPressure) }},
}

// Read reads the parts of the group at path, below the root as in Tree, and
// overwrites into. What the group has no file for stays not known, and so do
// pressures when the kernel was started with psi=0. A group that does not
// exist, or is removed meanwhile, gives an error that is both ErrNotFound and
// fs.ErrNotExist; then, and after any other error, into is not to be used. It
// blocks only on the kernel, and allocates only for errors and for files
// longer than any before.
func (r *Reader) Read(path string, parts Parts, into *Figures) error {
	*into = Figures{}
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
				return r.failed(s.name, fmt.Errorf("%.80q cannot be understood", data))
			}
		case errors.Is(err, unix.ENOENT):
			missing = true
		case errors.Is(err, unix.EOPNOTSUPP): // pressures, switched off at boot
		default:
			return r.failed(s.name, err)
		}
	}
	if !missing {
		return nil
	}
	// A file may be missing because its controller is off, or because the
	// group went away under the open directory. This one is in every group.
	fd, err := openat(dir, unsafe.StringData(fileControllers+"\x00"), unix.O_PATH)
	if err != nil {
		return r.failed(fileControllers+"\x00", err)
	}
	unix.Close(fd)
	return nil
}

// failed says what could not be read; name is of a source or empty.
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

// file reads a file of the open group into the buffer, where it lives until
// the next read.
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
		// The kernel hands such a file over in one piece if it fits, so what
		// ends with a line and leaves room is all of it.
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
