package cgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	units "github.com/coreos/go-systemd/v22/dbus"
)

// ErrNotSlice means that a path is not one of a slice.
var ErrNotSlice = errors.New("not the path of a slice")

const sliceSuffix = ".slice"

// rootSlice is the unit of the hierarchy's root (systemd.special(7)).
const rootSlice = "-.slice"

// slice is one slice: its unit and its cgroup below the hierarchy's root, such as
// a-b.slice and a.slice/a-b.slice.
type slice struct {
	unit, path string
}

// slicesOf returns the slices from the first below the root down to path. systemd names
// their directories: each slice is below that of the prefix of its name up to the last
// dash (systemd.slice(5)). For any other path, and for the root, it returns ErrNotSlice.
func slicesOf(path string) ([]slice, error) {
	rel, err := relative(path)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(rel, "/")
	out := make([]slice, len(parts))
	prefix := ""
	for i, unit := range parts {
		name, ok := strings.CutSuffix(unit, sliceSuffix)
		own, below := strings.CutPrefix(name, prefix)
		if !ok || !below || own == "" || strings.Contains(own, "-") {
			return nil, fmt.Errorf("cgroup path %q: %w: %q in it should be %sNAME%s with no dash in NAME", path, ErrNotSlice, unit, prefix, sliceSuffix)
		}
		out[i] = slice{unit: unit, path: strings.Join(parts[:i+1], "/")}
		prefix = name + "-"
	}
	return out, nil
}

// Slices are the cgroups of a Tree that systemd manages as slices. systemd creates,
// changes and removes them. All limits are also written to the kernel's files, since some
// have no property of systemd. Paths are those of slices, such as /a.slice/a-b.slice.
// Slices connects at its first use and waits a bounded time for each answer. A failed call
// may be repeated. The methods are safe for concurrent use. The methods that only Tree has
// do not call systemd. Kill is one of them, since systemd notices when the processes of a
// unit end.
type Slices struct {
	*Tree
	systemd *systemd
}

// NewSlices returns the slices of the systemd that manages t. Its sockets are below root;
// "" is /. Close closes the connection.
func (t *Tree) NewSlices(root string) *Slices {
	return &Slices{Tree: t, systemd: newSystemd(cmp.Or(root, "/"))}
}

// Close closes the connection and ends all calls that wait for systemd. Later calls
// return an error.
func (s *Slices) Close() { s.systemd.close() }

// untilReboot is the argument of SetUnitProperties for a change in /run.
const untilReboot = true

// Ensure creates the slice and its parents where they are missing, and sets its limits
// in systemd and in the kernel's files, until the next boot. It is idempotent. It rounds
// a CPU quota up to a whole percent, since systemd keeps no more. Without systemd it
// returns ErrNoSystemd or ErrUnanswered, and other errors as Tree.Ensure does.
func (s *Slices) Ensure(path string, r Resources) error {
	slices, err := slicesOf(path)
	if err != nil {
		return err
	}
	r.CPUMax = r.CPUMax.Whole()
	err = s.systemd.use(func(c *connection) error {
		parent := rootSlice
		for i, each := range slices {
			own := Resources{}
			if last := i == len(slices)-1; last {
				own = r
			} else if s.Exists(each.path) {
				parent = each.unit
				continue
			}
			if err := s.start(c, each, parent, own.properties(c.version)); err != nil {
				return fmt.Errorf("create slice %s: %w", each.unit, err)
			}
			parent = each.unit
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Tree.Ensure(path, r)
}

// start starts a slice with these limits. Accounting is enabled, so that the controllers
// are available to the cgroups below. systemd leaves the slice alone at shutdown: its
// creator ends it (as opencontainers/cgroups does for a kubelet, Apply in
// systemd/v2.go).
func (s *Slices) start(c *connection, what slice, parent string, limits []units.Property) error {
	properties := append([]units.Property{
		newProperty("DefaultDependencies", false),
		newProperty("CPUAccounting", true),
		newProperty("IOAccounting", true),
		newProperty("MemoryAccounting", true),
		newProperty("TasksAccounting", true),
	}, limits...)
	if parent != rootSlice {
		properties = append(properties, units.PropWants(parent))
	}
	err := c.startTransient(what.unit, properties)
	if !isError(err, unitExists) {
		return err
	}
	// It exists, created earlier or by systemd for a slice below it.
	if len(limits) > 0 {
		if err := c.setProperties(what.unit, limits); err != nil {
			return err
		}
	}
	if s.Exists(what.path) {
		return nil
	}
	return c.job("StartUnit", what.unit, func(ctx context.Context, ended chan<- string) (int, error) {
		return c.StartUnitContext(ctx, what.unit, "replace", ended)
	})
}

// startTransient creates a unit and starts it.
func (c *connection) startTransient(unit string, properties []units.Property) error {
	return c.job("StartTransientUnit", unit, func(ctx context.Context, ended chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "replace", properties, ended)
	})
}

// setProperties changes a unit until the next boot.
func (c *connection) setProperties(unit string, properties []units.Property) error {
	return c.call("SetUnitProperties", func(ctx context.Context) error {
		return c.SetUnitPropertiesContext(ctx, unit, untilReboot, properties...)
	})
}

// stop stops a unit. It resets a failed one, which frees its name.
func (c *connection) stop(unit string) error {
	err := c.job("StopUnit", unit, func(ctx context.Context, ended chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", ended)
	})
	if isError(err, noSuchUnit) {
		return nil
	}
	if errors.Is(err, ErrUnanswered) || errors.Is(err, errClosed) {
		return err
	}
	errReset := c.call("ResetFailedUnit", func(ctx context.Context) error { return c.ResetFailedUnitContext(ctx, unit) })
	if !isError(errReset, noSuchUnit) {
		err = errors.Join(err, errReset)
	}
	return err
}

// Delete stops the slice and all below it, and removes their cgroups. As Tree.Delete it
// kills nothing: a slice with processes stays, and Delete returns ErrBusy.
func (s *Slices) Delete(path string) error {
	slices, err := slicesOf(path)
	if err != nil {
		return err
	}
	if !s.Exists(path) {
		return nil
	}
	unit := slices[len(slices)-1].unit
	// systemd would end the processes and wait for that.
	populated, err := s.Populated(path)
	if populated {
		err = ErrBusy
	}
	if err == nil {
		err = s.systemd.use(func(c *connection) error { return c.stop(unit) })
	}
	if err != nil {
		return fmt.Errorf("stop slice %s: %w", unit, err)
	}
	return s.Tree.Delete(path) // cgroups that are no units
}

// Set is Tree.Set for a slice, and for a service or scope of another creator in one. It
// sets the limits in systemd too, and in the cgroup below a scope in which a runtime may
// have its processes. Errors of systemd are as with Ensure.
func (s *Slices) Set(path string, r Resources) error {
	if !s.Exists(path) {
		return fmt.Errorf("set limits of cgroup %s: %w", path, ErrNotFound)
	}
	unit := filepath.Base(path)
	if !strings.HasSuffix(unit, sliceSuffix) && !strings.HasSuffix(unit, scopeSuffix) && !strings.HasSuffix(unit, serviceSuffix) {
		return fmt.Errorf("set limits of cgroup %s: not a unit of systemd", path)
	}
	r.CPUMax = r.CPUMax.Whole()
	err := s.systemd.use(func(c *connection) error {
		properties := r.properties(c.version)
		if len(properties) == 0 {
			return nil
		}
		return c.setProperties(unit, properties)
	})
	if err != nil {
		return fmt.Errorf("set limits of unit %s: %w", unit, err)
	}
	if err := s.Tree.Set(path, r); err != nil {
		return err
	}
	if in := s.Payload(path); in != path {
		if err := s.Tree.Set(in, r); !errors.Is(err, ErrNotFound) { // the container has ended
			return err
		}
	}
	return nil
}

// Limits is Tree.Limits for a slice. For a scope, in which the runtime may have its
// processes in a cgroup below, it returns the lower limits of both cgroups, and the weight
// of the scope, which has siblings.
func (s *Slices) Limits(path string) (Limits, error) {
	l, err := s.Tree.Limits(path)
	if err != nil {
		return Limits{}, err
	}
	in := s.Payload(path)
	if in == path {
		return l, nil
	}
	inner, err := s.Tree.Limits(in)
	if errors.Is(err, ErrNotFound) { // the container has ended
		return l, nil
	}
	if err != nil {
		return Limits{}, err
	}
	if inner.MemoryMax.Known && (!l.MemoryMax.Known || inner.MemoryMax.Value < l.MemoryMax.Value) {
		l.MemoryMax = inner.MemoryMax
	}
	if inner.lessCPU(l) {
		l.CPUQuota, l.CPUPeriod = inner.CPUQuota, inner.CPUPeriod
	}
	return l, nil
}
