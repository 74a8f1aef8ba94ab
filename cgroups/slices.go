package cgroups

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Slices are the groups of a Tree that systemd manages as slices: it is asked
// to make, change and remove them, and what it has no property for is written
// to the kernel's files. Paths are those of slices, such as
// /a.slice/a-b.slice. Nothing is connected before the first use, each answer
// is waited for for a bounded time, and what fails may be repeated. The methods
// are safe for concurrent use.
//
// It is written on D-Bus itself rather than on go-systemd's dbus package, which
// is as large (51 kB of an arm64 binary that has D-Bus already; this has 67 with
// all around the calls): that one keeps two connections for as long as it is
// used, and waits without end for an answer while it connects.
type Slices struct {
	tree    *Tree
	systemd *systemd
}

// NewSlices takes the systemd that manages t: it is looked for below root,
// which is / where it is "". Close ends the connection.
func (t *Tree) NewSlices(root string) *Slices {
	return &Slices{tree: t, systemd: newSystemd(cmp.Or(root, "/"))}
}

// Close ends the connection and whatever waits for systemd; what is called
// afterwards fails.
func (s *Slices) Close() { s.systemd.close() }

// Ensure makes the slice and its parents where they are missing, and sets its
// limits, in systemd and in the kernel's files, for as long as the system
// runs. It is idempotent. A quota of CPU time is rounded up to a whole percent,
// which is all that systemd keeps. Without systemd it fails with ErrNoSystemd
// or ErrUnanswered, and else as Tree.Ensure does.
func (s *Slices) Ensure(path string, r Resources) error {
	slices, err := slicesOf(path)
	if err != nil {
		return err
	}
	r.CPUMax = r.CPUMax.Whole()
	err = s.systemd.use(func(l *link) error {
		parent := rootSlice
		for i, each := range slices {
			own := Resources{}
			if last := i == len(slices)-1; last {
				own = r
			} else if s.tree.Exists(each.path) {
				parent = each.unit
				continue
			}
			if err := s.start(l, each, parent, own.properties(l.version)); err != nil {
				return fmt.Errorf("make slice %s: %w", each.unit, err)
			}
			parent = each.unit
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.tree.Ensure(path, r)
}

// dependent is a unit that is to be made beside another, (sa(sv)): none is.
type dependent struct {
	Name       string
	Properties []property
}

// start brings a slice to run with these limits. Systemd is to count all that
// there is, so that the controllers are there for the groups below, and is to
// leave the slice alone when the system goes down: who has made it ends it (as
// opencontainers/cgroups does for a kubelet, Apply in systemd/v2.go).
func (s *Slices) start(l *link, what slice, parent string, limits []property) error {
	properties := append([]property{
		newProperty("DefaultDependencies", false),
		newProperty("CPUAccounting", true),
		newProperty("IOAccounting", true),
		newProperty("MemoryAccounting", true),
		newProperty("TasksAccounting", true),
	}, limits...)
	if parent != rootSlice {
		properties = append(properties, newProperty("Wants", []string{parent}))
	}
	err := l.run("StartTransientUnit", what.unit, "replace", properties, []dependent{})
	if !isError(err, unitExists) {
		return err
	}
	// It is there, made before or by systemd for something below it.
	if len(limits) > 0 {
		const untilReboot = true
		if _, err := l.call("SetUnitProperties", what.unit, untilReboot, limits); err != nil {
			return err
		}
	}
	if s.tree.Exists(what.path) {
		return nil
	}
	return l.run("StartUnit", what.unit, "replace")
}

// Delete stops the slice and all below it, and removes their groups. Its
// promises are those of Tree.Delete: it kills nothing, so that a slice with
// processes stays and gives ErrBusy.
func (s *Slices) Delete(path string) error {
	slices, err := slicesOf(path)
	if err != nil {
		return err
	}
	if !s.tree.Exists(path) {
		return nil
	}
	unit := slices[len(slices)-1].unit
	// Systemd would end the processes, and wait for that.
	populated, err := s.tree.Populated(path)
	if populated {
		err = ErrBusy
	}
	if err == nil {
		err = s.systemd.use(func(l *link) error { return l.stop(unit) })
	}
	if err != nil {
		return fmt.Errorf("stop slice %s: %w", unit, err)
	}
	return s.tree.Delete(path) // what systemd knows nothing of
}

// stop stops a unit. One that has failed has systemd forget that, so that its
// name is free.
func (l *link) stop(unit string) error {
	err := l.run("StopUnit", unit, "replace")
	if isError(err, noSuchUnit) {
		return nil
	}
	if errors.Is(err, ErrUnanswered) || errors.Is(err, errClosed) {
		return err
	}
	if _, errReset := l.call("ResetFailedUnit", unit); !isError(errReset, noSuchUnit) {
		err = errors.Join(err, errReset)
	}
	return err
}

// Exists says whether there is a group at path.
func (s *Slices) Exists(path string) bool { return s.tree.Exists(path) }

// List is Tree.List.
func (s *Slices) List(path string) ([]string, error) { return s.tree.List(path) }

// Kill is Tree.Kill: the slice's units, whose processes it ends, systemd sees
// by itself.
func (s *Slices) Kill(path string) error { return s.tree.Kill(path) }

// Set is Tree.Set for a slice, and for a service or scope that somebody else
// has made in one: systemd is told of the limits, too, and so has them the group
// below the scope in which a runtime may have its processes. Errors of systemd
// are as with Ensure.
func (s *Slices) Set(path string, r Resources) error {
	if !s.tree.Exists(path) {
		return fmt.Errorf("set limits of cgroup %s: %w", path, ErrNotFound)
	}
	unit := filepath.Base(path)
	if !strings.HasSuffix(unit, sliceSuffix) && !strings.HasSuffix(unit, scopeSuffix) && !strings.HasSuffix(unit, serviceSuffix) {
		return fmt.Errorf("set limits of cgroup %s: it is no unit of systemd", path)
	}
	r.CPUMax = r.CPUMax.Whole()
	err := s.systemd.use(func(l *link) error {
		const untilReboot = true
		properties := r.properties(l.version)
		if len(properties) == 0 {
			return nil
		}
		_, err := l.call("SetUnitProperties", unit, untilReboot, properties)
		return err
	})
	if err != nil {
		return fmt.Errorf("set limits of unit %s: %w", unit, err)
	}
	if err := s.tree.Set(path, r); err != nil {
		return err
	}
	return s.tree.setPayload(path, r)
}

// Limits is Tree.Limits for a slice; for a scope it tells what bounds its
// processes, which the runtime may have in a group of their own below it.
func (s *Slices) Limits(path string) (Limits, error) { return s.tree.limitsInScope(path) }

// MemoryCurrent is Tree.MemoryCurrent.
func (s *Slices) MemoryCurrent(path string) (uint64, error) { return s.tree.MemoryCurrent(path) }

// Spare is Tree.Spare.
func (s *Slices) Spare(path string, r Resources) (spared Resources, tooLow bool) {
	return s.tree.Spare(path, r)
}
