package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is one entry of the mount table of this process. device is the file
// system's device, as major:minor.
type mountPoint struct {
	path, fstype, device string
}

// mountsBelow lists the mounts at and below dir, in the order of mounting. dir
// must not contain symbolic links.
func (v *Manager) mountsBelow(dir string) ([]mountPoint, error) {
	return readMounts(v.mountinfo, dir)
}

func readMounts(mountinfo, dir string) ([]mountPoint, error) {
	raw, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return parseMounts(raw, dir), nil
}

// parseMounts parses /proc/PID/mountinfo (proc_pid_mountinfo(5)): the third
// field is the device, the fifth the mount point, the first after a separate dash
// the type. It skips malformed lines, and mounts that are not at or below dir.
func parseMounts(raw []byte, dir string) []mountPoint {
	var out []mountPoint
	for line := range bytes.Lines(raw) {
		before, after, ok := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(before)
		if !ok || len(fields) < 5 {
			continue
		}
		path := unescape(fields[4])
		if path != dir && !strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			continue
		}
		fstype, _, _ := bytes.Cut(after, []byte(" "))
		out = append(out, mountPoint{path: path, fstype: string(bytes.TrimSpace(fstype)), device: string(fields[2])})
	}
	return out
}

// unescape decodes the kernel's octal escapes (such as \040) of space, tab,
// newline and backslash.
func unescape(field []byte) string {
	if bytes.IndexByte(field, '\\') < 0 {
		return string(field)
	}
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if c, ok := octal(field[i:]); ok {
			out.WriteByte(c)
			i += 3
			continue
		}
		out.WriteByte(field[i])
	}
	return out.String()
}

func octal(s []byte) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] > '3' {
		return 0, false
	}
	var n byte
	for _, c := range s[1:4] {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n<<3 | (c - '0')
	}
	return n, true
}

// mounted reports whether path itself is a mount point. It uses statx(2) (Linux
// 5.8), and reads the mount table on older kernels.
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
	return slices.ContainsFunc(mounts, func(m mountPoint) bool { return m.path == real }), err
}

// mountedElsewhere reports whether another pod has the local volume mounted.
func (v *Manager) mountedElsewhere(uid, name string) (bool, error) {
	pods, err := filepath.EvalSymlinks(filepath.Join(v.root, dirPods))
	if err != nil {
		return false, err
	}
	mounts, err := v.mountsBelow(pods)
	own := filepath.Join(pods, uid) + "/"
	tail := filepath.Join("/", dirVolumes, dirLocal, name)
	return slices.ContainsFunc(mounts, func(m mountPoint) bool {
		return strings.HasSuffix(m.path, tail) && !strings.HasPrefix(m.path, own)
	}), err
}
