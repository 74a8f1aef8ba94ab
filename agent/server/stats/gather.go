package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tinylet/tinylet/cgroups"
)

// row is a group that was read: the node's if neither system nor pod is set,
// a system group's, a pod's if container is not set, or a container's.
type row struct {
	cgroup    string
	system    *Group
	pod       *Pod
	container *Container

	at      time.Time // zero if the group could not be read
	figures cgroups.Figures
	rate    cgroups.Figure // of the CPU, in billionths of a core

	// Made from the figures, where they have to be pointed at.
	nanoseconds, usage, workingSet, available, swapAvailable cgroups.Figure

	labels []byte // of the text forms
}

// gathered are all groups at one request. What could not be read is missing
// from rows; the node's row comes first, a pod's before its containers'.
type gathered struct {
	machine Machine
	pods    []Pod
	rows    []row
	// broken says that something could not be read that is there.
	broken bool
}

// gather reads all groups. A group that is gone is left out, as is one that
// cannot be read; only that is told in the log.
func (s *Stats) gather(ctx context.Context, parts cgroups.Parts) (*gathered, error) {
	if s.cfg.Looked != nil {
		defer s.cfg.Looked()
	}
	machine, err := s.cfg.Machine()
	if err != nil {
		return nil, fmt.Errorf("gather figures: the machine: %w", err)
	}
	pods, err := s.cfg.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("gather figures: list pods: %w", err)
	}
	if machine.SwapTotal == 0 {
		parts &^= cgroups.PartSwap
	}
	var system []Group
	if s.cfg.System != nil {
		system = s.cfg.System()
	}
	size := 1 + len(system) + len(pods)
	for i := range pods {
		size += len(pods[i].Containers)
	}
	g := &gathered{machine: machine, pods: pods, rows: make([]row, 0, size)}
	reader := s.cfg.Groups.NewReader()
	s.read(g, reader, parts, row{cgroup: "/"})
	for i := range system {
		s.read(g, reader, parts, row{cgroup: rooted(system[i].Cgroup), system: &system[i]})
	}
	for i := range pods {
		pod := &pods[i]
		s.read(g, reader, parts, row{cgroup: rooted(pod.Cgroup), pod: pod})
		for j := range pod.Containers {
			s.read(g, reader, parts, row{cgroup: rooted(pod.Containers[j].Cgroup), pod: pod, container: &pod.Containers[j]})
		}
	}
	s.mu.Lock()
	s.rates.update(g.rows)
	s.mu.Unlock()
	return g, nil
}

func (s *Stats) read(g *gathered, reader *cgroups.Reader, parts cgroups.Parts, r row) {
	if r.cgroup == "" { // not known; to the Reader it would be the root
		return
	}
	g.rows = append(g.rows, r)
	into := &g.rows[len(g.rows)-1]
	if err := reader.Read(r.cgroup, parts, &into.figures); err != nil {
		g.rows = g.rows[:len(g.rows)-1]
		if !errors.Is(err, fs.ErrNotExist) {
			g.broken = true
			s.cfg.Log.Warn("figures are missing", "node", s.cfg.Node, "error", err)
		}
		return
	}
	into.at = time.Now()
	into.derive(&g.machine)
}

// derive fills what is made from the figures.
func (r *row) derive(m *Machine) {
	f := &r.figures
	if r.isNode() {
		// The root has no limits and no swap of its own.
		f.Memory.Max = cgroups.Figure{Value: m.Memory, Known: true}
		f.Memory.SwapMax = cgroups.Figure{Value: m.SwapTotal, Known: true}
		f.Memory.SwapCurrent = cgroups.Figure{Value: m.SwapTotal - min(m.SwapFree, m.SwapTotal), Known: true}
	} else if m.SwapTotal == 0 {
		f.Memory.SwapCurrent = cgroups.Figure{Known: true}
	}
	r.usage, r.workingSet = f.Memory.Usage(), f.Memory.WorkingSet()
	r.available = left(f.Memory.Max, r.workingSet)
	r.swapAvailable = left(f.Memory.SwapMax, f.Memory.SwapCurrent)
	if f.CPU.Usage.Known {
		r.nanoseconds = cgroups.Figure{Value: f.CPU.Usage.Value * 1000, Known: true}
	}
}

// rooted is a path as cAdvisor writes it.
func rooted(path string) string {
	if path == "" || path[0] == '/' {
		return path
	}
	return "/" + path
}

func (r *row) isNode() bool { return r.system == nil && r.pod == nil }

// left is what of a limit is not used.
func left(limit, used cgroups.Figure) cgroups.Figure {
	if !limit.Known || !used.Known || limit.Value == cgroups.NoLimit {
		return cgroups.Figure{}
	}
	return cgroups.Figure{Value: limit.Value - min(limit.Value, used.Value), Known: true}
}
