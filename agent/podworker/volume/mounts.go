package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// deviceOf returns the device of a mounted file system as in stat(2).
func deviceOf(m *mountinfo.Info) uint64 { return unix.Mkdev(uint32(m.Major), uint32(m.Minor)) }

// mountsBelow lists the mounts at and below dir, in the order of mounting. dir
// must not contain symbolic links.
func (v *Manager) mountsBelow(dir string) ([]*mountinfo.Info, error) {
	return readMounts(v.mountinfo, dir)
}

func readMounts(path, dir string) ([]*mountinfo.Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer f.Close()
	return parseMounts(f, dir)
}

// parseMounts parses a mount table (proc_pid_mountinfo(5)). It returns an error for an
// invalid line: the data below a mount that is not known could be deleted.
func parseMounts(table io.Reader, dir string) ([]*mountinfo.Info, error) {
	found, err := mountinfo.GetMountsFromReader(table, mountinfo.PrefixFilter(strings.TrimSuffix(dir, "/")))
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return found, nil
}

// mounted reports whether path itself is a mount point. It uses statx(2) (Linux
// 5.8), and reads the mount table on older kernels. A missing path is not one.
func (v *Manager) mounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	return v.inTable(path)
}

// inTable reports whether the mount table has the path.
func (v *Manager) inTable(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	real := filepath.Join(parent, filepath.Base(path))
	mounts, err := v.mountsBelow(real)
	return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint == real }), err
}

// mountedElsewhere reports whether another pod has the local volume of the name mounted.
func (v *Manager) mountedElsewhere(uid, name string) (bool, error) {
	pods, err := filepath.EvalSymlinks(filepath.Join(v.root, dirPods))
	if err != nil {
		return false, err
	}
	mounts, err := v.mountsBelow(pods)
	own := filepath.Join(pods, uid) + "/"
	tail := filepath.Join("/", dirVolumes, dirLocal, name)
	return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool {
		return strings.HasSuffix(m.Mountpoint, tail) && !strings.HasPrefix(m.Mountpoint, own)
	}), err
}
