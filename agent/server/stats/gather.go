package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tinylet/tinylet/cgroups"
)

// row holds the stats of one cgroup. It is the node's if neither system nor pod
// is set, a system cgroup's if system is set, a pod's if only pod is set, and
// else a container's.
type row struct {
	cgroup    string // with a leading slash
	system    *SystemContainer
	pod       *Pod
	container *Container

	start time.Time // of the container, pod, system cgroup or node; zero is unknown
	at    time.Time // when the cgroup was read
	stats cgroups.Stats
	rate  cgroups.Number // CPU usage in nanocores

	// Derived from stats; the stats API needs pointers to them.
	nanoseconds, usage, workingSet, available, swapAvailable cgroups.Number

	labels []byte // of the metrics' text form
}

// collected holds the stats of all cgroups for one request. Cgroups that could
// not be read are missing from rows. The node's row is first, a pod's is before
// its containers'.
type collected struct {
	machine Machine
	pods    []Pod
	rows    []row
	// readFailed is set if an existing cgroup could not be read.
	readFailed bool
}

// collect reads all cgroups. It skips cgroups that no longer exist or cannot be
// read, and logs the latter.
func (s *Stats) collect(ctx context.Context, parts cgroups.Parts) (*collected, error) {
	defer s.cfg.AfterRead()
	machine, err := s.cfg.Machine()
	if err != nil {
		return nil, fmt.Errorf("collect stats: get machine info: %w", err)
	}
	pods, err := s.cfg.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("collect stats: list pods: %w", err)
	}
	if machine.SwapTotal == 0 {
		parts &^= cgroups.PartSwap
	}
	system := s.cfg.SystemContainers()
	size := 1 + len(system) + len(pods)
	for i := range pods {
		size += len(pods[i].Containers)
	}
	g := &collected{machine: machine, pods: pods, rows: make([]row, 0, size)}
	reader := s.cfg.Groups.NewReader()
	s.read(g, reader, parts, row{cgroup: "/", start: machine.Boot})
	for i := range system {
		s.read(g, reader, parts, row{cgroup: system[i].Cgroup, system: &system[i], start: system[i].Start})
	}
	for i := range pods {
		pod := &pods[i]
		s.read(g, reader, parts, row{cgroup: pod.Cgroup, pod: pod, start: pod.Sandbox.Start})
		for j := range pod.Containers {
			c := &pod.Containers[j]
			s.read(g, reader, parts, row{cgroup: c.Cgroup, pod: pod, container: c, start: c.Start})
		}
	}
	s.mu.Lock()
	s.rates = s.rates.next(g.rows)
	s.mu.Unlock()
	return g, nil
}

// read reads the cgroup of r and appends the row to g.
func (s *Stats) read(g *collected, reader *cgroups.Reader, parts cgroups.Parts, r row) {
	g.rows = append(g.rows, r)
	into := &g.rows[len(g.rows)-1]
	if err := reader.Read(r.cgroup, parts, &into.stats); err != nil {
		g.rows = g.rows[:len(g.rows)-1]
		if !errors.Is(err, fs.ErrNotExist) {
			g.readFailed = true
			s.cfg.Log.Warn("cannot read cgroup stats", "node", s.cfg.Node, "error", err)
		}
		return
	}
	into.at = time.Now()
	into.derive(&g.machine)
}

// derive fills the fields that are computed from stats.
func (r *row) derive(m *Machine) {
	f := &r.stats
	if r.isNode() {
		// The root cgroup has no limits and no swap stats.
		f.Memory.Max = cgroups.Number{Value: m.Memory, Known: true}
		f.Memory.SwapMax = cgroups.Number{Value: m.SwapTotal, Known: true}
		f.Memory.SwapCurrent = cgroups.Number{Value: m.SwapTotal - min(m.SwapFree, m.SwapTotal), Known: true}
	} else if m.SwapTotal == 0 {
		f.Memory.SwapCurrent = cgroups.Number{Known: true}
	}
	r.usage, r.workingSet = f.Memory.Usage(), f.Memory.WorkingSet()
	r.available = remaining(f.Memory.Max, r.workingSet)
	r.swapAvailable = remaining(f.Memory.SwapMax, f.Memory.SwapCurrent)
	if f.CPU.Usage.Known {
		r.nanoseconds = cgroups.Number{Value: f.CPU.Usage.Value * 1000, Known: true}
	}
}

func (r *row) isNode() bool { return r.system == nil && r.pod == nil }

// remaining returns the unused part of a limit.
func remaining(limit, used cgroups.Number) cgroups.Number {
	if !limit.Known || !used.Known || limit.Value == cgroups.NoLimit {
		return cgroups.Number{}
	}
	return cgroups.Number{Value: limit.Value - min(limit.Value, used.Value), Known: true}
}

// labelSize is the approximate size in bytes of the labels of one cgroup.
const labelSize = 320

// labelArena is an arena for the labels of many rows, which avoids an allocation
// for each.
type labelArena struct {
	free []byte // empty; its capacity is the remaining space
}

func newLabelArena(rows int) labelArena {
	return labelArena{free: make([]byte, 0, rows*labelSize)}
}

// keep returns labels with their memory reserved. labels must have been
// appended to t.free.
func (t *labelArena) keep(labels []byte) []byte {
	if n := len(labels); n <= cap(t.free) {
		t.free = t.free[n:n]
	}
	return labels[:len(labels):len(labels)]
}
