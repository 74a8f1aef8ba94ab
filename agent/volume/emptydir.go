package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// emptyDirMode lets every user of every container in; no set-group-ID bit,
// since the pod asks for no fsGroup (pkg/volume/emptydir).
const emptyDirMode fs.FileMode = 0o777

func (v *Volumes) emptyDir(p *v1.Pod, name string, source *v1.EmptyDirVolumeSource) (string, error) {
	if m := source.Medium; m != v1.StorageMediumDefault && m != v1.StorageMediumMemory {
		return "", fmt.Errorf("emptyDir.medium %q is not supported", m)
	}
	uid := string(p.UID)
	if err := errors.Join(component(uid), component(name)); err != nil {
		return "", err
	}
	pods, err := v.pods()
	if err != nil {
		return "", err
	}
	defer pods.Close()
	rel := filepath.Join(uid, dirVolumes, dirEmptyDir, name)
	if err := makeEmptyDir(pods, rel); err != nil {
		return "", err
	}
	path := filepath.Join(v.root, dirPods, rel)
	if source.Medium == v1.StorageMediumMemory {
		return path, v.tmpfs(path, v.tmpfsSize(p, source))
	}
	return path, nil
}

// makeEmptyDir makes the directory once. It is born without permissions, so
// that one whose making was cut off between two steps is known by that, and
// one that a container has given other permissions keeps them.
func makeEmptyDir(pods *os.Root, rel string) error {
	if err := pods.MkdirAll(filepath.Dir(rel), private); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := pods.Mkdir(rel, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	info, err := pods.Lstat(rel)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is a %s, not a directory: remove it", filepath.Join(pods.Name(), rel), kind(info.Mode()))
	}
	if info.Mode().Perm() == 0 {
		return pods.Chmod(rel, emptyDirMode)
	}
	return nil
}

// tmpfsSize is the smallest of the bounds that are set, or 0.
func (v *Volumes) tmpfsSize(p *v1.Pod, source *v1.EmptyDirVolumeSource) int64 {
	var size int64
	if v.MemoryLimit != nil {
		size = max(v.MemoryLimit(p), 0)
	}
	if q := source.SizeLimit; q != nil && q.Sign() > 0 && (size == 0 || q.CmpInt64(size) < 0) {
		size = q.Value()
	}
	return size
}

// tmpfs mounts memory at path, unless that is done: a volume in memory
// outlives the agent.
func (v *Volumes) tmpfs(path string, size int64) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	mounts, err := v.mountsBelow(real)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.path != real {
			continue
		}
		if m.fstype != "tmpfs" {
			return fmt.Errorf("%s is mounted at %s already", m.fstype, path)
		}
		return nil
	}
	options := ""
	if size > 0 {
		options = fmt.Sprintf("size=%d", size)
	}
	// Memory must not reach a disk by swapping; Linux before 6.4 has no such
	// option.
	noswap := "noswap"
	if options != "" {
		noswap = options + "," + noswap
	}
	err = v.mount("tmpfs", real, "tmpfs", 0, noswap)
	if errors.Is(err, unix.EINVAL) {
		err = v.mount("tmpfs", real, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", path, err)
	}
	return nil
}
