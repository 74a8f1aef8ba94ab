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

// statfsFlags maps the flags of a bind mount in mount(2) to those in statfs(2).
var statfsFlags = []struct {
	mount uintptr
	shown int64
}{
	{unix.MS_RDONLY, 0x1},
	{unix.MS_NOSUID, 0x2},
	{unix.MS_NODEV, 0x4},
	{unix.MS_NOEXEC, 0x8},
	{unix.MS_NOATIME, 0x400},
	{unix.MS_NODIRATIME, 0x800},
	{unix.MS_RELATIME, 0x1000},
}

// isReadOnly reports whether a mount is read-only. It returns true on an error.
func isReadOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) != nil || int64(st.Flags)&1 != 0
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
	var have uintptr
	for _, f := range statfsFlags {
		if int64(st.Flags)&f.shown != 0 {
			have |= f.mount
		}
	}
	if have&flags == flags {
		return nil
	}
	if err := v.mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|have|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", target, err)
	}
	return nil
}
