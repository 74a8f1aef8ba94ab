// Package podcgroup writes the cgroups of pods, with the cgroup driver of the runtime,
// and limits the cgroups of daemons to the reserved resources of the configuration.
package podcgroup

import "github.com/tinylet/tinylet/cgroups"

// Driver creates and changes pod cgroups in the same way as the runtime: with the
// cgroupfs or the systemd driver. It is safe for concurrent use.
type Driver struct {
	*cgroups.Tree // what is the same with both drivers
	slices        *cgroups.Slices
	// systemd reports whether the runtime's cgroup driver is systemd.
	systemd func() bool
}

// New returns a Driver of a hierarchy. systemd is called for each operation.
func New(tree *cgroups.Tree, systemd func() bool) *Driver {
	return &Driver{Tree: tree, slices: tree.NewSlices(""), systemd: systemd}
}

// Close closes the connection to systemd. Operations that wait for it fail.
func (d *Driver) Close() { d.slices.Close() }

// manager is what differs between Tree and Slices.
type manager interface {
	Ensure(path string, r cgroups.Resources) error
	Delete(path string) error
	Set(path string, r cgroups.Resources) error
	Limits(path string) (cgroups.Limits, error)
}

func (d *Driver) manager() manager {
	if d.systemd() {
		return d.slices
	}
	return d.Tree
}

// Ensure calls Ensure of cgroups.Tree or cgroups.Slices.
func (d *Driver) Ensure(path string, r cgroups.Resources) error {
	return d.manager().Ensure(path, r)
}

// Delete calls Delete of cgroups.Tree or cgroups.Slices.
func (d *Driver) Delete(path string) error { return d.manager().Delete(path) }

// Set calls Set of cgroups.Tree or cgroups.Slices.
func (d *Driver) Set(path string, r cgroups.Resources) error { return d.manager().Set(path, r) }

// Limits calls Limits of cgroups.Tree or cgroups.Slices.
func (d *Driver) Limits(path string) (cgroups.Limits, error) { return d.manager().Limits(path) }
