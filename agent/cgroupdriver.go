package agent

import (
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/cgroups"
)

// cgroupDriver makes pods' cgroups as the runtime does: by the kernel's files,
// or by systemd. No pod has a cgroup before the runtime has told which.
type cgroupDriver struct {
	files  *cgroups.Tree
	slices *cgroups.Slices
	// systemd says that the runtime's driver is systemd.
	systemd func() bool
}

var _ podsync.Cgroups = (*cgroupDriver)(nil)

func newCgroupDriver(tree *cgroups.Tree, node *nodeFacts) *cgroupDriver {
	return &cgroupDriver{files: tree, slices: tree.NewSlices(""), systemd: node.slices}
}

func (d *cgroupDriver) told() podsync.Cgroups {
	if d.systemd() {
		return d.slices
	}
	return d.files
}

// Ensure implements podsync.Cgroups.
func (d *cgroupDriver) Ensure(path string, r cgroups.Resources) error {
	return d.told().Ensure(path, r)
}

// Delete implements podsync.Cgroups.
func (d *cgroupDriver) Delete(path string) error { return d.told().Delete(path) }

// Kill implements podsync.Cgroups.
func (d *cgroupDriver) Kill(path string) error { return d.told().Kill(path) }

// Exists implements podsync.Cgroups.
func (d *cgroupDriver) Exists(path string) bool { return d.told().Exists(path) }

// ID implements podsync.Cgroups.
func (d *cgroupDriver) ID(path string) (uint64, error) { return d.files.ID(path) }

// List implements podsync.Cgroups.
func (d *cgroupDriver) List(path string) ([]string, error) { return d.told().List(path) }

// Set implements podsync.Cgroups.
func (d *cgroupDriver) Set(path string, r cgroups.Resources) error { return d.told().Set(path, r) }

// Limits implements podsync.Cgroups.
func (d *cgroupDriver) Limits(path string) (cgroups.Limits, error) { return d.told().Limits(path) }

// MemoryCurrent implements podsync.Cgroups.
func (d *cgroupDriver) MemoryCurrent(path string) (uint64, error) { return d.files.MemoryCurrent(path) }

// Spare implements podsync.Cgroups.
func (d *cgroupDriver) Spare(path string, r cgroups.Resources) (spared cgroups.Resources, tooLow bool) {
	return d.files.Spare(path, r)
}
