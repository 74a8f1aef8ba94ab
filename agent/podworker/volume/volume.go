// Package volume manages the directory pods/<uid> of each pod below the root
// directory: its volumes, its subPath mounts, its /etc/hosts and the termination
// messages of its containers. The layout is the kubelet's
// (pkg/kubelet/kubelet_getters.go of Kubernetes). The package also checks
// hostPath volumes. It does not touch volumes of plugins that this agent does not
// have, such as CSI, which a kubelet has set up there (Foreign).
//
// Containers write into these directories as root, so the content of a volume is
// hostile: no symbolic link is followed out of the volume, and deletion stops at
// mount points. The disk and the kernel's mount table are the only state, except for
// the unmounts of network volumes that have not returned. The agent may die after any
// step.
package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
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

	// privateDirMode is the mode of these directories. It denies access to the node's
	// other users, because some volumes are writable by all users.
	privateDirMode fs.FileMode = 0o750
)

// Manager creates and removes the pods' directories. Its methods block on the
// disk. Calls for different pods may be concurrent; calls for one pod must come
// from its pod worker.
type Manager struct {
	// MemoryLimit returns the memory in bytes that a pod can use. It is the maximum
	// size of each emptyDir volume in memory when the volume is mounted. If it is nil
	// or returns 0, and the volume has no sizeLimit, the kernel's default of half the
	// memory applies. Set it before the first call.
	MemoryLimit func(p *v1.Pod) int64

	root         string
	mountinfo    string
	setupTimings *metrics.TimingVec // durations of volume setups

	// The system calls, replaced in tests.
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error

	serverTimeout time.Duration   // replaced in tests
	unmounting    diskusage.Guard // by the paths of network volumes
}

// New returns a Manager for the agent's root directory, such as /var/lib/kubelet. It does
// not access the disk.
func New(rootDir string) *Manager {
	return &Manager{
		root:         rootDir,
		mountinfo:    "/proc/self/mountinfo",
		setupTimings: metrics.NewTimingVec(operationBounds),
		mount:        unix.Mount,
		unmount:      unix.Unmount,

		serverTimeout: serverTimeout,
	}
}

// Orphans lists the UIDs of all pods that have a directory. The caller excludes the desired
// pods. It omits pods whose directory has only foreign volumes left.
func (v *Manager) Orphans() ([]types.UID, error) {
	s, err := newForeignScan("", v.root, v.mountinfo)
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	names, err := s.podNames()
	var uids []types.UID
	for _, name := range names {
		if !s.onlyForeignLeft(name) {
			uids = append(uids, types.UID(name))
		}
	}
	return uids, err
}

// pods opens the parent of all pods' directories. It creates the parent if it is missing.
func (v *Manager) pods() (*os.Root, error) {
	dir := filepath.Join(v.root, dirPods)
	if err := os.MkdirAll(dir, privateDirMode); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	return os.OpenRoot(dir)
}

// checkComponent returns an error unless name is a single valid path component, other
// than "." and "..".
func checkComponent(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > unix.NAME_MAX || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a valid directory name", name)
	}
	return nil
}

// withRemedy adds a remedy to an error of the file system.
func (v *Manager) withRemedy(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: free space or inodes on the file system that holds it", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: mount it writable, or move the root directory %s (--root-dir)", err, v.root)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: run the agent as root, and check for immutable files (lsattr)", err)
	}
	return err
}
