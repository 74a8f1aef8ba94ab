package volume

import (
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	// emptyDirMode gives access to every user of every container
	// (pkg/volume/emptydir).
	emptyDirMode fs.FileMode = 0o777
	// groupMode has the bits that an fsGroup adds to a writable directory: full
	// access for the group, and setgid, so that new files belong to the group
	// (pkg/volume/volume_linux.go).
	groupMode = fs.ModeSetgid | 0o770
)

func (s *setup) emptyDir(name string, source *v1.EmptyDirVolumeSource) (string, error) {
	medium := source.Medium
	huge := strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages))
	if medium != v1.StorageMediumDefault && medium != v1.StorageMediumMemory && !huge {
		return "", fmt.Errorf("emptyDir.medium %q is not supported", medium)
	}
	mode, err := modeOfEmptyDir(source)
	if err != nil {
		return "", err
	}
	rel, err := s.dir(dirEmptyDir, name)
	if err != nil {
		return "", err
	}
	err = s.makeDir(rel, func() error { return s.setMode(rel, mode, groupMode) })
	if err != nil {
		return "", err
	}
	path := s.path(rel)
	switch {
	case medium == v1.StorageMediumMemory:
		options := s.ownedBy(source.Mode, mode)
		if size := s.v.tmpfsSize(s.pod, source); size > 0 {
			options = append([]string{fmt.Sprintf("size=%d", size)}, options...)
		}
		return path, s.v.tmpfs(path, options)
	case huge:
		size, err := pageSize(s.pod, medium)
		if err != nil {
			return "", err
		}
		return path, s.v.mountOnce(path, "hugetlbfs", append([]string{"pagesize=" + size}, s.ownedBy(source.Mode, mode)...))
	}
	return path, nil
}

// modeOfEmptyDir returns the volume's mode, or the default.
func modeOfEmptyDir(source *v1.EmptyDirVolumeSource) (fs.FileMode, error) {
	if source.Mode == nil {
		return emptyDirMode, nil
	}
	if m := *source.Mode; m < 0 || m > 0o1777 {
		return 0, fmt.Errorf("emptyDir.mode %#o is out of range: must be from 0 to 01777", m)
	}
	return fileMode(*source.Mode), nil
}

// fileMode converts a mode of the API: permission bits and the sticky bit.
func fileMode(mode int32) fs.FileMode {
	out := fs.FileMode(mode) & fs.ModePerm
	if mode&unix.S_ISVTX != 0 {
		out |= fs.ModeSticky
	}
	return out
}

// ownedBy returns the mount options for the group and mode of a new file system's
// root. asked is the mode that the pod sets, or nil. Without an fsGroup and asked it
// returns none: the root then has the kernel's mode, 01777 for tmpfs, as under a kubelet.
func (s *setup) ownedBy(asked *int32, mode fs.FileMode) []string {
	group, ok := s.fsGroup()
	if !ok && asked == nil {
		return nil
	}
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 || asked == nil {
		bits |= unix.S_ISVTX
	}
	if !ok {
		return []string{fmt.Sprintf("mode=%04o", bits)}
	}
	return []string{fmt.Sprintf("gid=%d", group), fmt.Sprintf("mode=%04o", bits|unix.S_ISGID|0o770)}
}

// tmpfsSize returns the smaller of MemoryLimit and the volume's sizeLimit in
// bytes, or 0 if neither is set.
func (v *Manager) tmpfsSize(p *v1.Pod, source *v1.EmptyDirVolumeSource) int64 {
	var size int64
	if v.MemoryLimit != nil {
		size = max(v.MemoryLimit(p), 0)
	}
	if q := source.SizeLimit; q != nil && q.Sign() > 0 && (size == 0 || q.CmpInt64(size) < 0) {
		size = q.Value()
	}
	return size
}
