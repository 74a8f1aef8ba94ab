package volume

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// bindFD bind-mounts an open file at target, with flags such as MS_RDONLY. If the agent is
// killed between the two system calls, the next setup adds the missing flags with
// addMountFlags.
func (v *Manager) bindFD(fd int, target string, flags uintptr) error {
	if err := v.mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind-mount at %s: %w", target, err)
	}
	return v.addMountFlags(target, flags)
}

// sameFlags are the flags of a bind mount that have the same numbers in mount(2) and
// statfs(2): all but relatime.
const sameFlags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME

// isReadOnly reports whether a mount is read-only. It returns true on an error.
func isReadOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) != nil || st.Flags&unix.ST_RDONLY != 0
}

// addMountFlags adds flags to a bind mount and keeps its other flags. It does not remount
// if all flags are set already.
func (v *Manager) addMountFlags(target string, flags uintptr) error {
	if flags == 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: target, Err: err}
	}
	have := uintptr(st.Flags) & sameFlags
	if st.Flags&unix.ST_RELATIME != 0 {
		have |= unix.MS_RELATIME
	}
	if have&flags == flags {
		return nil
	}
	if err := v.mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|have|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", target, err)
	}
	return nil
}
