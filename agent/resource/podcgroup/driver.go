// Package podcgroup writes the cgroups of pods and of daemons, with the cgroup driver
// of the runtime and within the reserved resources of the configuration.
package podcgroup

import "github.com/tinylet/tinylet/cgroups"

// Driver creates and changes pod cgroups in the same way as the runtime: with the
// cgroupfs or the systemd driver. It is safe for concurrent use.
type Driver struct {
	files  *cgroups.Tree
	slices *cgroups.Slices
	// systemd reports whether the runtime's cgroup driver is systemd.
	systemd func() bool
}

// New returns a Driver of a hierarchy. systemd is called for each operation.
func New(tree *cgroups.Tree, systemd func() bool) *Driver {
	return &Driver{files: tree, slices: tree.NewSlices(""), systemd: systemd}
}

// Close closes the connection to systemd. Operations that wait for it fail.
func (d *Driver) Close() { d.slices.Close() }

// manager is the interface that both Tree and Slices implement.
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

// Ensure calls Ensure of cgroups.Tree or cgroups.Slices.
func (d *Driver) Ensure(path string, r cgroups.Resources) error {
	return d.manager().Ensure(path, r)
}

// Delete calls Delete of cgroups.Tree or cgroups.Slices.
func (d *Driver) Delete(path string) error { return d.manager().Delete(path) }

// Kill calls Kill of cgroups.Tree or cgroups.Slices.
func (d *Driver) Kill(path string) error { return d.manager().Kill(path) }

// Exists calls Exists of cgroups.Tree or cgroups.Slices.
func (d *Driver) Exists(path string) bool { return d.manager().Exists(path) }

// ID calls ID of cgroups.Tree.
func (d *Driver) ID(path string) (uint64, error) { return d.files.ID(path) }

// List calls List of cgroups.Tree or cgroups.Slices.
func (d *Driver) List(path string) ([]string, error) { return d.manager().List(path) }

// Set calls Set of cgroups.Tree or cgroups.Slices.
func (d *Driver) Set(path string, r cgroups.Resources) error { return d.manager().Set(path, r) }

// Limits calls Limits of cgroups.Tree or cgroups.Slices.
func (d *Driver) Limits(path string) (cgroups.Limits, error) { return d.manager().Limits(path) }

// MemoryCurrent calls MemoryCurrent of cgroups.Tree.
func (d *Driver) MemoryCurrent(path string) (uint64, error) { return d.files.MemoryCurrent(path) }

// WithoutLowMemoryMax calls WithoutLowMemoryMax of cgroups.Tree.
func (d *Driver) WithoutLowMemoryMax(path string, r cgroups.Resources) (_ cgroups.Resources, tooLow bool) {
	return d.files.WithoutLowMemoryMax(path, r)
}
