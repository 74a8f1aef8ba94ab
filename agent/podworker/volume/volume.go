// Package volume manages the directory pods/<uid> of each pod below the root
// directory: its volumes, its subPath mounts, its /etc/hosts and the termination
// messages of its containers. The layout is the kubelet's
// (pkg/kubelet/kubelet_getters.go of Kubernetes). The package also checks
// hostPath volumes. It does not touch volumes of plugins that this agent does not
// have, such as CSI, which a kubelet has set up there (Foreign).
//
// Containers write into these directories as root, so the content of a volume is
// hostile: no symbolic link is followed out of the volume, and deletion stops at
// mount points. The package has no state in memory: the disk and the kernel's
// mount table are the state. Each step may be the last before a power cut.
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
	// MemoryLimit returns the memory in bytes that a pod can use. It limits the
	// size of each emptyDir volume in memory. If it is nil or returns 0, the
	// kernel's default of half the memory applies. Set it before the first call.
	MemoryLimit func(p *v1.Pod) int64

	root         string
	mountinfo    string
	setupTimings *metrics.TimingVec // durations of volume setups

	// The system calls, replaced in tests.
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error

	serverTimeout time.Duration
	unmounting    diskusage.Guard // by the paths of network volumes
}

// New returns a Volumes for the agent's root directory, such as
// /var/lib/kubelet. It does not access the disk.
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

// Orphans lists the UIDs of all pods that have a directory; the caller knows
// which of them are desired. It omits pods whose directory has nothing left but
// foreign volumes.
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

// pods opens the parent of all pods' directories, and creates it if it is
// missing.
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

// withRemedy adds a remedy to an error of the disk.
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
