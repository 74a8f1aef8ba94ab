package diskusage

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// beneath keeps an open in its directory: no links, and nothing mounted below.
const beneath = unix.RESOLVE_BENEATH | sameMount

// sameMount keeps an open in its mount, and follows no links.
const sameMount = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// statx looks at a name, which ends with a zero byte, in an open directory; an
// empty one is what is open itself. It follows no link at the end. The name is
// passed on as it lies in the buffer, since a copy for each file of a tree
// would be most of the garbage of a request.
func statx(dir int, name *byte, into *unix.Statx_t) error {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_EMPTY_PATH
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS | unix.STATX_MNT_ID
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), flags, mask, uintptr(unsafe.Pointer(into)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// openat2 opens a name, which ends with a zero byte, in an open directory, as
// far as resolve lets it lead (openat2(2), Linux 5.6).
func openat2(dir int, name *byte, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		case unix.ENOSYS:
			return -1, fmt.Errorf("openat2 needs Linux 5.6: %w", errno)
		default:
			return -1, errno
		}
	}
}

// gone says that a name leads nowhere now, or to what is not measured: it was
// removed or replaced meanwhile, or something is mounted there.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ESTALE)
}

// dot is the name of a directory in itself, above that of its parent, nothing
// that of what is open.
var dot, above, nothing = [...]byte{'.', 0}, [...]byte{'.', '.', 0}, [...]byte{0}
