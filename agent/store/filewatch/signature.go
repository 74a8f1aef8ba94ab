package filewatch

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Signature identifies a version of a file by the fields of statx(2) that change with its
// content or its inode. The zero value is that of no file.
type Signature struct {
	Size uint64
	// Mode has the type and the permissions of the file, as in statx(2).
	Mode uint16

	major, minor uint32
	inode        uint64
	mtime, ctime unix.StatxTimestamp
}

// IsRegular reports whether the file is a regular file.
func (s *Signature) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// IsDir reports whether the file is a directory.
func (s *Signature) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// SameFile reports whether both signatures belong to the same file or directory,
// whatever its content.
func (s *Signature) SameFile(o *Signature) bool {
	return s.major == o.major && s.minor == o.minor && s.inode == o.inode && s.Mode&unix.S_IFMT == o.Mode&unix.S_IFMT
}

// Modified returns the time of the last write.
func (s *Signature) Modified() time.Time { return time.Unix(s.mtime.Sec, int64(s.mtime.Nsec)) }

// Path is a path with a terminating zero byte, as system calls require. It is kept
// so that repeated calls of Stat allocate nothing.
type Path []byte

// NewPath returns a Path. path must not contain a zero byte.
func NewPath(path string) Path { return append([]byte(path), 0) }

// Stat returns the signature of the file and follows symbolic links. Its error is an
// errno. It uses statx(2), which has the same layout and 64-bit seconds on every
// architecture.
func (p Path) Stat() (Signature, error) { return statx(unix.AT_FDCWD, p, 0) }

// StatFile returns the signature of an open file. Its error is an errno.
func StatFile(file *os.File) (Signature, error) {
	return statx(int(file.Fd()), Path{0}, unix.AT_EMPTY_PATH)
}

func statx(fd int, path Path, flags int) (Signature, error) {
	var st unix.Statx_t
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&path[0])), uintptr(flags),
			unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&st)), 0)
		switch errno {
		case 0:
			return Signature{
				Size: st.Size, Mode: st.Mode, major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino,
				mtime: st.Mtime, ctime: st.Ctime,
			}, nil
		case unix.EINTR:
			continue
		default:
			return Signature{}, errno
		}
	}
}
