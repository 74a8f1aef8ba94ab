// Package volume owns what a pod has on the node's disk: the directory
// pods/<uid> below the root directory, with its emptyDir volumes, its
// /etc/hosts and its containers' termination messages, laid out as a kubelet
// does it (pkg/kubelet/kubelet_getters.go of Kubernetes); and it checks what
// the pod takes from elsewhere by hostPath.
//
// Containers write into these directories as root, so whatever lies in a
// volume is hostile: it is never followed out of the pod's directory, and
// deleting stops where another file system is mounted. Nothing is kept in
// memory; the disk and the kernel's mount table are the state.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Directories below the root and below a pod's.
const (
	dirPods       = "pods"
	dirVolumes    = "volumes"
	dirEmptyDir   = "kubernetes.io~empty-dir"
	dirContainers = "containers"
	fileHosts     = "etc-hosts"

	// private keeps the node's other users out, who could reach volumes that
	// anybody may write.
	private fs.FileMode = 0o750
)

// Volumes makes and removes the pods' directories. Its methods block on the
// disk. Calls for different pods may run at once; those for one pod belong
// to its worker.
type Volumes struct {
	// MemoryLimit bounds the emptyDir volumes in memory of a pod, in bytes
	// each, such as the pod's memory limit; nil, or 0 for a pod, leaves the
	// kernel's own bound of half the memory. Set it before the first call.
	MemoryLimit func(p *v1.Pod) int64

	root      string
	mountinfo string

	// The kernel's two calls, replaced in tests.
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error
}

// New takes the agent's root directory, such as /var/lib/kubelet. It touches
// nothing yet.
func New(rootDir string) *Volumes {
	return &Volumes{
		root:      rootDir,
		mountinfo: "/proc/self/mountinfo",
		mount:     unix.Mount,
		unmount:   unix.Unmount,
	}
}

// Setup makes the pod's volumes and answers the host path of each, by name.
// It is idempotent and keeps what is in them. It fails on the first volume
// that cannot be had, naming it and, where there is one, the remedy; the
// volumes before it stay.
func (v *Volumes) Setup(ctx context.Context, p *v1.Pod) (map[string]string, error) {
	paths := make(map[string]string, len(p.Spec.Volumes))
	for i := range p.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		volume := &p.Spec.Volumes[i]
		if _, twice := paths[volume.Name]; twice {
			return nil, fmt.Errorf("set up volume %q: the pod has two of that name", volume.Name)
		}
		path, err := v.setup(p, volume)
		if err != nil {
			return nil, fmt.Errorf("set up volume %q: %w", volume.Name, v.advise(err))
		}
		paths[volume.Name] = path
	}
	return paths, nil
}

func (v *Volumes) setup(p *v1.Pod, volume *v1.Volume) (string, error) {
	switch source := &volume.VolumeSource; {
	case source.EmptyDir != nil:
		return v.emptyDir(p, volume.Name, source.EmptyDir)
	case source.HostPath != nil:
		return hostPath(source.HostPath)
	case *source == v1.VolumeSource{}: // by the API's defaults an emptyDir
		return v.emptyDir(p, volume.Name, &v1.EmptyDirVolumeSource{})
	default:
		return "", errors.New("only emptyDir and hostPath are supported yet")
	}
}

// Orphans lists the pods that have a directory, whether anybody wants them
// or not: the caller knows which it wants.
func (v *Volumes) Orphans() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(v.root, dirPods))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() && component(e.Name()) == nil {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// pods opens the directory of all pods' directories, and makes it.
func (v *Volumes) pods() (*os.Root, error) {
	dir := filepath.Join(v.root, dirPods)
	if err := os.MkdirAll(dir, private); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	return os.OpenRoot(dir)
}

// component holds for what is one name in a directory and no way out of it.
func component(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > unix.NAME_MAX || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q cannot be the name of a directory", name)
	}
	return nil
}

// advise adds what an operator can do about an error of the disk.
func (v *Volumes) advise(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: free space or inodes on the file system that holds it", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: mount it writable, or move the root directory %s (--root-dir)", err, v.root)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: run the agent as root, and look for immutable files (lsattr)", err)
	}
	return err
}
