package diskusage

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// beneath restricts an open to its directory: no links, and no mounts below it.
const beneath = unix.RESOLVE_BENEATH | sameMount

// sameMount restricts an open to its mount, without links.
const sameMount = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// statx calls statx(2) for a name in an open directory. The name must end with a zero
// byte; an empty one means the open file itself. statx does not follow a link at the
// end. The name is passed as it is in the buffer, because a copy for each file of a
// tree would be most of the garbage of a request.
func statx(dir int, name *byte, into *unix.Statx_t) error {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_EMPTY_PATH
	const mask = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_NLINK | unix.STATX_GID | unix.STATX_INO | unix.STATX_BLOCKS | unix.STATX_MNT_ID
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

// openat2 opens a name in an open directory, with the restrictions of resolve
// (openat2(2), Linux 5.6). The name must end with a zero byte.
func openat2(dir int, name *byte, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		case unix.ENOSYS:
			return -1, fmt.Errorf("openat2 requires Linux 5.6: %w", errno)
		default:
			return -1, errno
		}
	}
}

// isGone reports whether err means that a name no longer exists or is not measured: it
// was removed or replaced meanwhile, or something is mounted on it.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ESTALE)
}

// dot is the name of a directory in itself, dotdot that of its parent, and emptyName means
// the open file.
var dot, dotdot, emptyName = [...]byte{'.', 0}, [...]byte{'.', '.', 0}, [...]byte{0}
