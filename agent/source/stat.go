package source

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signature changes whenever a file's content changes, as far as stat shows it.
type signature struct {
	major, minor uint32
	inode, size  uint64
	mode         uint16
	mtime, ctime unix.StatxTimestamp
}

func (s *signature) regular() bool { return s.mode&unix.S_IFMT == unix.S_IFREG }
func (s *signature) folder() bool  { return s.mode&unix.S_IFMT == unix.S_IFDIR }

// sameFile reports whether both signatures belong to the same file or
// directory, whatever its content.
func (s *signature) sameFile(o *signature) bool {
	return s.major == o.major && s.minor == o.minor && s.inode == o.inode && s.mode&unix.S_IFMT == o.mode&unix.S_IFMT
}

// modified returns the time of the last write.
func (s *signature) modified() time.Time { return time.Unix(s.mtime.Sec, int64(s.mtime.Nsec)) }

// cpath is a path with a terminating zero byte, as system calls require. It is
// kept so that repeated stat calls allocate nothing.
type cpath []byte

func newCPath(path string) cpath { return append([]byte(path), 0) }

// stat stats the path and follows symbolic links. It uses statx(2), which has
// the same layout and 64-bit seconds on every architecture.
func (p cpath) stat() (signature, error) {
	return statx(unix.AT_FDCWD, p, 0)
}

// statFD stats an open file.
func statFD(fd int) (signature, error) {
	return statx(fd, cpath{0}, unix.AT_EMPTY_PATH)
}

func statx(fd int, path cpath, flags int) (signature, error) {
	var st unix.Statx_t
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&path[0])), uintptr(flags),
			unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&st)), 0)
		switch errno {
		case 0:
			return signature{
				major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino, size: st.Size,
				mode: st.Mode, mtime: st.Mtime, ctime: st.Ctime,
			}, nil
		case unix.EINTR:
			continue
		default:
			return signature{}, errno
		}
	}
}
