// Package cgroups manages one cgroup v2 hierarchy, mounted anywhere: it reports the
// controllers, creates cgroups with limits and delegates controllers to them,
// kills and deletes them, reads their stats, and reports the kernel's notifications
// about them (Poller). Where systemd manages the cgroups, Slices creates, changes and
// deletes them through it. The package imports nothing of Kubernetes, and has no state
// in addition to the kernel's and systemd's.
//
// A single cgroup is created, changed, killed and deleted with
// github.com/containerd/cgroups/v3/cgroup2 (Manager), and units are changed with
// github.com/coreos/go-systemd/v22/dbus. In the comments below, each is "the library".
// Functions that these lack use the kernel's files and D-Bus directly, with the reason in
// the doc comment: reading stats (Reader), files that Manager does not write or read
// (file.go), waiting for events (Poller), and timeouts of calls to systemd.
package cgroups

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// DefaultRoot is where a Linux system mounts cgroup v2 alone
// (Documentation/admin-guide/cgroup-v2.rst).
const DefaultRoot = "/sys/fs/cgroup"

var (
	// ErrNotMounted means that no cgroup v2 hierarchy is mounted at the root.
	ErrNotMounted = errors.New("cgroup v2 is not mounted")
	// ErrController means that a controller is missing or cannot be enabled.
	ErrController = errors.New("cgroup controller is not available")
	// ErrBusy means that a cgroup to delete has processes.
	ErrBusy = errors.New("cgroup still has processes")
	// ErrNotFound means that the cgroup does not exist.
	ErrNotFound = errors.New("cgroup does not exist")
)

// Tree is one mounted hierarchy. Its methods block only on the kernel, are safe for
// concurrent use, and take the path of a cgroup below the root, with or without a
// leading slash. A path that leaves the root is an error.
type Tree struct {
	root string

	// create creates a cgroup whose parent exists. Tests replace it: the kernel
	// creates the files of a cgroup with its directory.
	create func(dir string) error
}

// Open opens the hierarchy that is mounted at root; "" is DefaultRoot. It returns
// ErrNotMounted if no hierarchy is mounted there.
func Open(root string) (*Tree, error) {
	t := &Tree{root: filepath.Clean(cmp.Or(root, DefaultRoot)), create: create}
	if _, err := t.Controllers(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open cgroups at %s: %w there: mount it (mount -t cgroup2 none %s) and take cgroup v1 off the kernel command line", t.root, ErrNotMounted, t.root)
		}
		return nil, fmt.Errorf("open cgroups at %s: %w", t.root, err)
	}
	return t, nil
}

// load returns the library's manager of the cgroup at dir. Its mount point is the
// parent of dir, so that ToggleControllers writes one file and returns its error. With
// the mount point of the hierarchy it would write the files of all ancestors and return
// the last error only.
func load(dir string) (*cgroup2.Manager, error) {
	return cgroup2.Load("/"+filepath.Base(dir), cgroup2.WithMountpoint(filepath.Dir(dir)))
}

// create implements Tree.create. NewManager does not fit: after an error it removes the
// cgroup, also one that was there before.
func create(dir string) error {
	parent, err := load(filepath.Dir(dir))
	if err != nil {
		return err
	}
	_, err = parent.NewChild(filepath.Base(dir), nil)
	return err
}

// Controllers returns the controllers of the root in the kernel's order, such as cpu,
// memory and pids.
func (t *Tree) Controllers() ([]string, error) {
	m, err := load(t.root)
	if err != nil {
		return nil, err
	}
	have, err := m.Controllers()
	if err != nil {
		return nil, fmt.Errorf("read controllers: %w", err)
	}
	return have, nil
}

// Missing returns which of the required controllers the root lacks, in the order of
// required. On a Raspberry Pi memory is missing unless the kernel command line enables
// it (cgroup_enable=memory).
func (t *Tree) Missing(required ...string) ([]string, error) {
	have, err := t.Controllers()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(required), func(c string) bool { return slices.Contains(have, c) }), nil
}

// dir returns the directory of a cgroup.
func (t *Tree) dir(path string) (string, error) {
	rel, err := relative(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(t.root, rel), nil
}

// below returns the directory and the library's manager of a cgroup other than the root,
// to do what must not happen to the root.
func (t *Tree) below(path, what string) (string, *cgroup2.Manager, error) {
	rel, err := relative(path)
	if err != nil {
		return "", nil, err
	}
	if rel == "." {
		return "", nil, fmt.Errorf("%s cgroup %s: it is the root", what, t.root)
	}
	dir := filepath.Join(t.root, rel)
	m, err := load(dir)
	return dir, m, err
}

// relative returns the path without its leading slash. "." is the root. The library's
// VerifyGroupPath does not replace it: that rejects any path that is not clean, and one
// that begins with /sys/fs/cgroup.
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
