// Package volume owns what a pod has on the node's disk: the directory
// pods/<uid> below the root directory, with its volumes, its subPath mounts,
// its /etc/hosts and its containers' termination messages, laid out as a
// kubelet does it (pkg/kubelet/kubelet_getters.go of Kubernetes); and it
// checks what the pod takes from elsewhere by hostPath. What a kubelet has
// set up there of plugins that this agent does not have, such as CSI, stays as
// it is (Foreign).
//
// Containers write into these directories as root, so whatever lies in a
// volume is hostile: it is never followed out of the volume, and deleting
// stops where another file system is mounted. Nothing is kept in memory; the
// disk and the kernel's mount table are the state, and each step may be the
// last before a power cut.
package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/metrics"
)

// Directories below the root and below a pod's.
const (
	dirPods       = "pods"
	dirVolumes    = "volumes"
	dirEmptyDir   = "kubernetes.io~empty-dir"
	dirConfigMap  = "kubernetes.io~configmap"
	dirSecret     = "kubernetes.io~secret"
	dirDownward   = "kubernetes.io~downward-api"
	dirProjected  = "kubernetes.io~projected"
	dirLocal      = "kubernetes.io~local-volume"
	dirSubPaths   = "volume-subpaths"
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
	// MemoryLimit is how much memory in bytes a pod can use, which bounds each of
	// its emptyDir volumes in memory; nil, or 0 for a pod, leaves the kernel's own
	// bound of half the memory. Set it before the first call.
	MemoryLimit func(p *v1.Pod) int64

	root      string
	mountinfo string
	took      *metrics.Timings // the making of volumes

	// The kernel's two calls, replaced in tests.
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error

	serverWait time.Duration
	unmounting sync.Map // paths of network volumes whose unmount takes long
}

// New takes the agent's root directory, such as /var/lib/kubelet. It touches
// nothing yet.
func New(rootDir string) *Volumes {
	return &Volumes{
		root:      rootDir,
		mountinfo: "/proc/self/mountinfo",
		took:      metrics.NewTimings(operationBounds),
		mount:     unix.Mount,
		unmount:   unix.Unmount,

		serverWait: serverWait,
	}
}

// Orphans lists the pods that have a directory, whether anybody wants them
// or not: the caller knows which it wants. Those of which nothing can be deleted
// but foreign volumes are left out.
func (v *Volumes) Orphans() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(v.root, dirPods))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	s, err := newSurvey("", v.root, v.mountinfo)
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() && component(e.Name()) == nil && (s == nil || !s.settled(e.Name())) {
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
