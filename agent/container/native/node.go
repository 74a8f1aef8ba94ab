package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// maxProfile bounds a seccomp profile in bytes.
const maxProfile = 1 << 20

// NodeFacts returns the facts of this machine.
func NodeFacts() (*spec.Node, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read hostname: %w", err)
	}
	capabilities, err := cap.Current()
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	return &spec.Node{
		Hostname: hostname, Capabilities: capabilities,
		SwapAccounting: exists("/proc/swaps"), HugeTLB: hasController("hugetlb"), Seccomp: exists("/proc/sys/kernel/seccomp"),
		SELinux: exists("/sys/fs/selinux/enforce"), AppArmor: exists("/sys/kernel/security/apparmor") && exists("/sbin/apparmor_parser"),
		HostPath: hostPath, MountOf: mountOf, Devices: devices, DefaultSeccomp: seccomp.DefaultProfile,
		ReadSeccomp: func(path string) ([]byte, error) { return atomicfile.Read(path, maxProfile) }, AppArmorLoaded: profileLoaded,
	}, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func hasController(name string) bool {
	data, err := atomicfile.Read("/sys/fs/cgroup/cgroup.controllers", 4<<10)
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(data))+" ", " "+name+" ")
}

// hostPath resolves the path of a bind mount, and makes missing directories.
func hostPath(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, os.MkdirAll(path, 0o755)
	}
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, err
	}
	return filepath.EvalSymlinks(path)
}

// mountOf returns the mount that a path is in.
func mountOf(path string) (*mountinfo.Info, error) {
	all, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, err
	}
	var out *mountinfo.Info
	for _, m := range all {
		if out == nil || len(m.Mountpoint) >= len(out.Mountpoint) { // a later one covers an earlier one
			out = m
		}
	}
	if out == nil {
		return nil, fmt.Errorf("no mount contains %q", path)
	}
	return out, nil
}

// devices returns the device nodes at or below a path.
func devices(path string) (root string, nodes []specs.LinuxDevice, err error) {
	if root, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() {
		node, ok, err := deviceOf(root)
		if err == nil && !ok {
			err = fmt.Errorf("%q is neither a device nor a directory", root)
		}
		return root, []specs.LinuxDevice{node}, err
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Type()&fs.ModeDevice == 0 && e.Type()&fs.ModeNamedPipe == 0 {
			return ignoreGone(err)
		}
		node, ok, err := deviceOf(path)
		if ok {
			nodes = append(nodes, node)
		}
		return ignoreGone(err)
	})
	return root, nodes, err
}

// ignoreGone returns nil for a node that has gone meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// deviceOf reads a device node. ok is false for a file that is none.
func deviceOf(path string) (node specs.LinuxDevice, ok bool, err error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return node, false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	kind := map[uint32]string{unix.S_IFBLK: "b", unix.S_IFCHR: "c", unix.S_IFIFO: "p"}[s.Mode&unix.S_IFMT]
	if kind == "" {
		return node, false, nil
	}
	mode := os.FileMode(s.Mode & 0o777)
	return specs.LinuxDevice{
		Path: path, Type: kind, Major: int64(unix.Major(uint64(s.Rdev))), Minor: int64(unix.Minor(uint64(s.Rdev))), FileMode: &mode, UID: &s.Uid, GID: &s.Gid,
	}, true, nil
}

// profileLoaded reports whether the kernel has an AppArmor profile.
func profileLoaded(name string) (bool, error) {
	data, err := atomicfile.Read("/sys/kernel/security/apparmor/profiles", 1<<20)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(data)) {
		if loaded, _, _ := strings.Cut(line, " ("); loaded == name {
			return true, nil
		}
	}
	return false, nil
}
