package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// delegated are the controllers that Ensure hands down wherever the root has
// them, needed or not: those that a container runtime may want in a group
// below, and those that a stock kubelet looks for in a pod's group before it
// takes it for whole.
var delegated = []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"}

// Unlimited as a limit takes a former limit away.
const Unlimited int64 = -1

// Resources are a group's own limits. A zero field leaves what is there.
type Resources struct {
	// CPUWeight is the share of the CPU against siblings, 1 to 10000; the
	// kernel's default is 100.
	CPUWeight uint64
	// CPUMax bounds the CPU time.
	CPUMax CPUMax
	// MemoryMax is the hard limit in bytes, or Unlimited.
	MemoryMax int64
	// PidsMax is how many tasks may live in the group, or Unlimited.
	PidsMax int64
	// Unified is what else is written, by the file's name, such as memory.low:
	// the controller is what stands before the first dot (the field of that
	// name in the OCI runtime specification).
	Unified map[string]string
}

// CPUMax is CPU time per period.
type CPUMax struct {
	Quota  int64  // microseconds, or Unlimited
	Period uint64 // microseconds; 0 is the kernel's default of 100000
}

type setting struct {
	controller, file, value string
}

func (r Resources) settings() []setting {
	var out []setting
	if r.CPUWeight != 0 {
		out = append(out, setting{"cpu", fileCPUWeight, strconv.FormatUint(r.CPUWeight, 10)})
	}
	if r.CPUMax.Quota != 0 {
		value := limit(r.CPUMax.Quota)
		if r.CPUMax.Period != 0 {
			value += " " + strconv.FormatUint(r.CPUMax.Period, 10)
		}
		out = append(out, setting{"cpu", fileCPUMax, value})
	}
	if r.MemoryMax != 0 {
		out = append(out, setting{"memory", fileMemoryMax, limit(r.MemoryMax)})
	}
	if r.PidsMax != 0 {
		out = append(out, setting{"pids", filePidsMax, limit(r.PidsMax)})
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		controller, _, _ := strings.Cut(file, ".")
		out = append(out, setting{controller, file, r.Unified[file]})
	}
	return out
}

func limit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// Ensure makes the group and its parents where they are missing, hands the
// controllers down to it, and writes its limits. It is idempotent. Where a
// controller that r needs cannot be had it fails with ErrController and
// names the controller and the place; a controller that nobody asked for is
// left out in silence.
func (t *Tree) Ensure(path string, r Resources) error {
	rel, err := relative(path)
	if err != nil {
		return err
	}
	for file := range r.Unified {
		if !strings.Contains(file, ".") || strings.ContainsRune(file, filepath.Separator) || strings.HasPrefix(file, "cgroup.") {
			return fmt.Errorf("set %q in cgroup %s: that is no controller's file", file, path)
		}
	}
	settings := r.settings()
	var needed []string
	for _, s := range settings {
		if !slices.Contains(needed, s.controller) {
			needed = append(needed, s.controller)
		}
	}
	dir := t.root
	if rel != "." {
		for _, part := range strings.Split(rel, string(filepath.Separator)) {
			if err := t.delegate(dir, needed); err != nil {
				return fmt.Errorf("make cgroup %s: %w", filepath.Join(t.root, rel), err)
			}
			dir = filepath.Join(dir, part)
			if err := t.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
	}
	for _, s := range settings {
		if err := s.write(dir); err != nil {
			return fmt.Errorf("set %s to %q in cgroup %s: %w", s.file, s.value, dir, err)
		}
	}
	return nil
}

// delegate enables the controllers for the children of dir.
func (t *Tree) delegate(dir string, needed []string) error {
	have, err := t.controllers(dir)
	if err != nil {
		return err
	}
	for _, c := range needed {
		if !slices.Contains(have, c) {
			return fmt.Errorf("%w: %s is not in %s", ErrController, c, filepath.Join(dir, fileControllers))
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, fileSubtree))
	if err != nil {
		return fmt.Errorf("read delegated controllers: %w", err)
	}
	enabled := strings.Fields(string(raw))
	var all []string
	for _, c := range delegated {
		if slices.Contains(have, c) && !slices.Contains(enabled, c) {
			all = append(all, "+"+c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if write(filepath.Join(dir, fileSubtree), strings.Join(all, " ")) == nil {
		return nil
	}
	// The kernel takes all or none: find out which it refuses.
	for _, c := range all {
		err := write(filepath.Join(dir, fileSubtree), c)
		if err == nil || !slices.Contains(needed, c[1:]) {
			continue
		}
		why := ""
		if errors.Is(err, unix.EBUSY) {
			why = " (processes live in that cgroup itself: move them into a child)"
		}
		return fmt.Errorf("%w: enable %s for the children of %s: %w%s", ErrController, c[1:], dir, err, why)
	}
	return nil
}

// write gives the kernel the value. More tasks than it will ever have, four
// millions, or 32768 where it has 32 bits, it refuses as a limit (pids_max_write
// in kernel/cgroup/pids.c): that is none.
func (s *setting) write(dir string) error {
	file := filepath.Join(dir, s.file)
	err := write(file, s.value)
	if s.file == filePidsMax && errors.Is(err, unix.EINVAL) {
		return write(file, limit(Unlimited))
	}
	return err
}

// write gives the kernel one value. The file must exist.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
