// Package cgroups owns one cgroup v2 hierarchy, mounted anywhere: which
// controllers it has, making groups with limits and delegating controllers
// down to them, freezing, killing and deleting them, reading what they use, and
// waiting for what the kernel tells of them (Poller). Where systemd manages the
// groups, it is asked to make, change and delete them (Slices). It knows no
// Kubernetes and keeps no state beside the kernel's and systemd's.
//
// It is written on the kernel's files themselves rather than on
// github.com/containerd/cgroups/v3. Measured with Go 1.26 for linux/arm64,
// stripped, in a program that has gRPC and CRI already: that module's
// cgroup2 package adds 1.5 MB (11.9 against 10.4) and 19 packages, eBPF and
// logrus among them, for nothing that is used here.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRoot is where a Linux system mounts cgroup v2 alone
// (Documentation/admin-guide/cgroup-v2.rst).
const DefaultRoot = "/sys/fs/cgroup"

// The kernel's files that this package uses, by cgroup-v2.rst.
const (
	fileControllers  = "cgroup.controllers"
	fileSubtree      = "cgroup.subtree_control"
	fileEvents       = "cgroup.events"
	fileProcs        = "cgroup.procs"
	fileKill         = "cgroup.kill"
	fileCPUWeight    = "cpu.weight"
	fileCPUMax       = "cpu.max"
	fileMemoryMax    = "memory.max"
	fileMemory       = "memory.current"
	fileMemoryMin    = "memory.min"
	fileMemoryStat   = "memory.stat"
	fileMemoryEvents = "memory.events"
	fileOwnEvents    = "memory.events.local"
	filePidsEvents   = "pids.events"
	fileFreeze       = "cgroup.freeze"
	filePidsMax      = "pids.max"
)

var (
	// ErrNotMounted says that no cgroup v2 hierarchy is at the root.
	ErrNotMounted = errors.New("cgroup v2 is not mounted")
	// ErrController says that a controller is missing or cannot be enabled.
	ErrController = errors.New("cgroup controller is not available")
	// ErrBusy says that processes live in a group that should go.
	ErrBusy = errors.New("cgroup still has processes")
	// ErrNotFound says that the group does not exist.
	ErrNotFound = errors.New("cgroup does not exist")
)

// Tree is one mounted hierarchy. Its methods block only on the kernel, are
// safe for concurrent use, and take the path of a group below the root, with
// or without a leading slash; a path that leaves the root is an error.
type Tree struct {
	root string

	// The kernel's two calls, replaced in tests: a directory made in a
	// cgroup file system comes with its files, and removing it needs no
	// emptying.
	mkdir func(dir string) error
	rmdir func(dir string) error
}

// Open takes the hierarchy that is mounted at root; "" is DefaultRoot. It
// fails with ErrNotMounted where there is none.
func Open(root string) (*Tree, error) {
	if root == "" {
		root = DefaultRoot
	}
	t := &Tree{
		root:  filepath.Clean(root),
		mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) },
		rmdir: unix.Rmdir,
	}
	if _, err := t.Controllers(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open cgroups at %s: %w there: mount it (mount -t cgroup2 none %s) and take cgroup v1 off the kernel command line", t.root, ErrNotMounted, t.root)
		}
		return nil, fmt.Errorf("open cgroups at %s: %w", t.root, err)
	}
	return t, nil
}

// Controllers lists what the root has, in the kernel's order, such as cpu,
// memory and pids.
func (t *Tree) Controllers() ([]string, error) {
	return t.controllers(t.root)
}

// Missing lists which of the required controllers the root lacks, in the
// order asked. On a Raspberry Pi memory is missing until the kernel command
// line enables it (cgroup_enable=memory).
func (t *Tree) Missing(required ...string) ([]string, error) {
	have, err := t.Controllers()
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, c := range required {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// List names the groups directly below path, sorted; a group that does not
// exist gives ErrNotFound.
func (t *Tree) List(path string) ([]string, error) {
	dir, err := t.dir(path)
	if err != nil {
		return nil, err
	}
	children, err := children(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list cgroup %s: %w", dir, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroup %s: %w", dir, err)
	}
	return children, nil
}

// Exists says whether there is a group at path.
func (t *Tree) Exists(path string) bool {
	dir, err := t.dir(path)
	if err != nil {
		return false
	}
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// dir is the directory of a group.
func (t *Tree) dir(path string) (string, error) {
	rel, err := relative(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(t.root, rel), nil
}

// relative is the path without its leading slash; "." is the root.
func relative(path string) (string, error) {
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		rel = "."
	}
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return "", fmt.Errorf("cgroup path %q leaves the root", path)
	}
	return filepath.Clean(rel), nil
}

func (t *Tree) controllers(dir string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, fileControllers))
	if err != nil {
		return nil, fmt.Errorf("read controllers: %w", err)
	}
	return strings.Fields(string(raw)), nil
}

func children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
