// Package podcgroup owns how the agent writes cgroups of pods and of daemons: by
// the cgroup driver of the runtime, and within what the configuration reserves.
package podcgroup

import "github.com/tinylet/tinylet/cgroups"

// Driver creates and changes pods' cgroups as the runtime does: by files of
// cgroupfs, or by systemd. It is safe for concurrent use.
type Driver struct {
	files  *cgroups.Tree
	slices *cgroups.Slices
	// systemd reports whether the runtime's cgroup driver is systemd.
	systemd func() bool
}

// New makes a Driver of a hierarchy. systemd is called for each operation.
func New(tree *cgroups.Tree, systemd func() bool) *Driver {
	return &Driver{files: tree, slices: tree.NewSlices(""), systemd: systemd}
}

// Close ends the connection to systemd; operations that wait for it fail.
func (d *Driver) Close() { d.slices.Close() }

// manager is what both Tree and Slices implement.
type manager interface {
	Ensure(path string, r cgroups.Resources) error
	Delete(path string) error
	Kill(path string) error
	Exists(path string) bool
	List(path string) ([]string, error)
	Set(path string, r cgroups.Resources) error
	Limits(path string) (cgroups.Limits, error)
}

func (d *Driver) manager() manager {
	if d.systemd() {
		return d.slices
	}
	return d.files
}

// Ensure is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Ensure(path string, r cgroups.Resources) error {
	return d.manager().Ensure(path, r)
}

// Delete is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Delete(path string) error { return d.manager().Delete(path) }

// Kill is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Kill(path string) error { return d.manager().Kill(path) }

// Exists is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Exists(path string) bool { return d.manager().Exists(path) }

// ID is that of cgroups.Tree.
func (d *Driver) ID(path string) (uint64, error) { return d.files.ID(path) }

// List is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) List(path string) ([]string, error) { return d.manager().List(path) }

// Set is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Set(path string, r cgroups.Resources) error { return d.manager().Set(path, r) }

// Limits is that of cgroups.Tree or cgroups.Slices.
func (d *Driver) Limits(path string) (cgroups.Limits, error) { return d.manager().Limits(path) }

// MemoryCurrent is that of cgroups.Tree.
func (d *Driver) MemoryCurrent(path string) (uint64, error) { return d.files.MemoryCurrent(path) }

// Spare is that of cgroups.Tree.
func (d *Driver) Spare(path string, r cgroups.Resources) (spared cgroups.Resources, tooLow bool) {
	return d.files.Spare(path, r)
}
