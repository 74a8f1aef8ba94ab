package cgroups

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// delegated are the controllers that Ensure delegates wherever the root has them, needed
// or not: those that a container runtime may need in a cgroup below, and those without
// which a stock kubelet takes a pod's cgroup for incomplete.
var delegated = []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"}

// Unlimited as a limit removes an earlier limit.
const Unlimited int64 = -1

// Resources are the limits of a cgroup. A zero field changes nothing.
type Resources struct {
	// CPUWeight is the share of CPU time relative to siblings, 1 to 10000. The
	// kernel's default is 100.
	CPUWeight uint64
	// CPUMax limits CPU time.
	CPUMax CPUMax
	// MemoryMax is the hard limit in bytes, or Unlimited.
	MemoryMax int64
	// PidsMax is how many tasks may live in the cgroup, or Unlimited.
	PidsMax int64
	// Unified are further values by file name, such as memory.low. The controller is
	// the part before the first dot (the field of that name in the OCI runtime
	// specification).
	Unified map[string]string
}

// CPUMax is CPU time per period.
type CPUMax struct {
	Quota  int64  // microseconds, or Unlimited
	Period uint64 // microseconds; 0 is the kernel's default of 100000
}

// setting is one value of a file.
type setting struct {
	controller, file, value string
	// typed is the same for the library, which opens files with O_CREAT and O_TRUNC.
	// It is nil for Unified: the library has no field for a file by name.
	typed *cgroup2.Resources
}

func (r Resources) settings() []setting {
	var out []setting
	if r.CPUWeight != 0 {
		out = append(out, setting{"cpu", fileCPUWeight, strconv.FormatUint(r.CPUWeight, 10),
			&cgroup2.Resources{CPU: &cgroup2.CPU{Weight: &r.CPUWeight}}})
	}
	if r.CPUMax.Quota != 0 {
		value := limit(r.CPUMax.Quota)
		if r.CPUMax.Period != 0 {
			value += " " + strconv.FormatUint(r.CPUMax.Period, 10)
		}
		out = append(out, setting{"cpu", fileCPUMax, value, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.CPUMax(value)}}})
	}
	if r.MemoryMax != 0 {
		most := r.MemoryMax
		if most < 0 {
			// The library writes numbers only. The kernel takes this one for "max",
			// since it rounds down to pages (page_counter_memparse in
			// mm/page_counter.c), and rejects -1.
			most = math.MaxInt64
		}
		out = append(out, setting{"memory", fileMemoryMax, limit(r.MemoryMax), &cgroup2.Resources{Memory: &cgroup2.Memory{Max: &most}}})
	}
	if r.PidsMax != 0 {
		out = append(out, setting{"pids", filePidsMax, limit(r.PidsMax), &cgroup2.Resources{Pids: &cgroup2.Pids{Max: r.PidsMax}}})
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		controller, _, _ := strings.Cut(file, ".")
		out = append(out, setting{controller: controller, file: file, value: r.Unified[file]})
	}
	return out
}

func limit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// write writes the value in the cgroup at dir. The kernel rejects a limit of more tasks
// than it can ever have, 4 million, or 32768 with 32 bits (pids_max_write in
// kernel/cgroup/pids.c): that is written as no limit.
func (s *setting) write(dir string) error {
	if s.typed == nil {
		return write(filepath.Join(dir, s.file), s.value)
	}
	m, err := load(dir)
	if err != nil {
		return err
	}
	err = m.Update(s.typed)
	if s.file == filePidsMax && errors.Is(err, unix.EINVAL) {
		return m.Update(&cgroup2.Resources{Pids: &cgroup2.Pids{Max: Unlimited}})
	}
	return err
}

// controllersOf returns the controllers of settings.
func controllersOf(settings []setting) []string {
	var out []string
	for _, s := range settings {
		if !slices.Contains(out, s.controller) {
			out = append(out, s.controller)
		}
	}
	return out
}

// Ensure creates the cgroup and its parents where they are missing, delegates the
// controllers to it, and writes its limits. It is idempotent. Where a controller that r
// needs is not available, it returns ErrController and names the controller and the
// place. A controller that r does not need is left out without an error.
func (t *Tree) Ensure(path string, r Resources) error {
	rel, err := relative(path)
	if err != nil {
		return err
	}
	for file := range r.Unified {
		if !strings.Contains(file, ".") || strings.ContainsRune(file, filepath.Separator) || strings.HasPrefix(file, "cgroup.") {
			return fmt.Errorf("set %q in cgroup %s: not a file of a controller", file, path)
		}
	}
	settings := r.settings()
	needed := controllersOf(settings)
	dir := t.root
	if rel != "." {
		for _, part := range strings.Split(rel, string(filepath.Separator)) {
			dir = filepath.Join(dir, part)
			if err := delegate(dir, needed); err != nil {
				return fmt.Errorf("create cgroup %s: %w", filepath.Join(t.root, rel), err)
			}
			if isDir(dir) {
				continue
			}
			if err := t.create(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("create cgroup %s: %w", dir, err)
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

// delegate enables the controllers for the cgroup at dir and its siblings. What is
// enabled already is not written again: the kernel would lock all cgroups for it, and
// wait for removed ones (cgroup_subtree_control_write in kernel/cgroup/cgroup.c).
func delegate(dir string, needed []string) error {
	m, err := load(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	have, err := m.RootControllers() // those of the parent
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	for _, c := range needed {
		if !slices.Contains(have, c) {
			return fmt.Errorf("%w: %s is not in %s", ErrController, c, filepath.Join(parent, fileControllers))
		}
	}
	var buf [256]byte // the kernel has 15 controllers
	n, err := read(filepath.Join(parent, fileSubtree), buf[:])
	if err != nil {
		return fmt.Errorf("read delegated controllers: %w", err)
	}
	enabled := strings.Fields(string(buf[:n]))
	missing := slices.DeleteFunc(slices.Clone(delegated), func(c string) bool {
		return !slices.Contains(have, c) || slices.Contains(enabled, c)
	})
	if len(missing) == 0 || m.ToggleControllers(missing, cgroup2.Enable) == nil {
		return nil
	}
	// The kernel enables all or none: find those that it rejects.
	for _, c := range missing {
		err := m.ToggleControllers([]string{c}, cgroup2.Enable)
		if err == nil || !slices.Contains(needed, c) {
			continue
		}
		why := ""
		if errors.Is(err, unix.EBUSY) {
			why = " (processes live in that cgroup itself: move them into a child)"
		}
		return fmt.Errorf("%w: enable %s for the children of %s: %w%s", ErrController, c, parent, err, why)
	}
	return nil
}

// Set writes limits of an existing cgroup. Unlike Ensure it creates none. It returns
// ErrNotFound without the cgroup, and ErrController without the controller. After an
// error some of the limits may have been written.
func (t *Tree) Set(path string, r Resources) error {
	dir, err := t.dir(path)
	if err != nil {
		return err
	}
	for _, s := range r.settings() {
		if err := s.write(dir); err != nil {
			return fmt.Errorf("set %s to %q in cgroup %s: %w", s.file, s.value, dir, writeError(dir, err))
		}
	}
	return nil
}

// Limits are the limits in the files of a cgroup. A limit that the kernel shows as "max"
// is NoLimit. A limit without a file is not known.
type Limits struct {
	// CPUWeight is 1 to 10000.
	CPUWeight Number
	// CPUQuota is microseconds in each CPUPeriod, which is also in microseconds, and
	// known if the quota is.
	CPUQuota  Number
	CPUPeriod uint64
	// MemoryMax is bytes.
	MemoryMax Number
}

// Limits reads cpu.weight, cpu.max and memory.max, of which the library reads the last
// only. It returns ErrNotFound without the cgroup. It blocks only on the kernel.
func (t *Tree) Limits(path string) (Limits, error) {
	var l Limits
	for _, file := range []struct {
		name  string
		parse func(data []byte) bool
	}{
		{fileCPUWeight, func(d []byte) bool { return parseSingle(d, &l.CPUWeight) }},
		{fileCPUMax, l.parseCPUMax},
		{fileMemoryMax, func(d []byte) bool { return parseLimit(d, &l.MemoryMax) }},
	} {
		var buf [64]byte
		name, n, err := t.read(path, file.name, buf[:])
		switch {
		case errors.Is(err, ErrController):
		case err != nil:
			return Limits{}, err
		case !file.parse(buf[:n]):
			return Limits{}, fmt.Errorf("read %s: unexpected text %q", name, buf[:n])
		}
	}
	return l, nil
}

// parseCPUMax parses "QUOTA PERIOD". The quota may be "max".
func (l *Limits) parseCPUMax(data []byte) bool {
	quota, period := cut(data, ' ')
	var q Number
	n, ok := number(period)
	if !ok || n == 0 || !parseLimit(quota, &q) {
		return false
	}
	l.CPUQuota, l.CPUPeriod = q, n
	return true
}

// lessCPU reports whether l limits CPU time more than other does.
func (l Limits) lessCPU(other Limits) bool {
	if !l.CPUQuota.Known || l.CPUQuota.Value == NoLimit {
		return false
	}
	if !other.CPUQuota.Known || other.CPUQuota.Value == NoLimit {
		return true
	}
	share := func(l Limits) float64 { return float64(l.CPUQuota.Value) / float64(l.CPUPeriod) }
	return cmp.Less(share(l), share(other))
}

// WithoutLowMemoryMax returns r without its memory limit if that is below the usage of
// the cgroup, and whether it is: the kernel would kill in the cgroup at once. File pages
// that were not used recently do not count, since the kernel reclaims them first: they
// fill a cgroup up to its limit. A cgroup that does not exist, or has no memory
// controller, uses nothing.
func (t *Tree) WithoutLowMemoryMax(path string, r Resources) (_ Resources, tooLow bool) {
	if r.MemoryMax <= 0 {
		return r, false
	}
	if current, err := t.MemoryCurrent(path); err != nil || current <= uint64(r.MemoryMax) {
		return r, false
	}
	if used, err := t.WorkingSet(path); err == nil && used <= uint64(r.MemoryMax) {
		return r, false
	}
	r.MemoryMax = 0
	return r, true
}

const (
	scopeSuffix   = ".scope"
	serviceSuffix = ".service"
	// inScope is the cgroup that crun creates below the scope of a container, since the
	// scope's own belongs to systemd (crun(1), run.oci.systemd.subgroup). runc creates
	// none.
	inScope = "container"
)

// Payload returns the cgroup that has the processes of a container, from the path of the
// container's: the same one, or the one that the runtime has created below a scope. It
// blocks only on the kernel.
func (t *Tree) Payload(path string) string {
	if in := path + "/" + inScope; strings.HasSuffix(path, scopeSuffix) && t.Exists(in) {
		return in
	}
	return path
}
