package bench

import (
	"fmt"
	"strings"
	"time"
)

// part is a share of a node: processes that are counted together.
type part int

// The parts of a node.
const (
	partAgent part = iota
	partContainerd
	partShims
	partPods   // processes of containers, and pause
	partKernel // its threads
	partOther  // init, supervisors, what carries the measuring
	parts
)

// partOf says what a process belongs to, on a node whose agent has a name.
func (s *sample) partOf(pid int, agent string) part {
	p := s.processes[pid]
	switch {
	case p.name == agent:
		return partAgent
	case p.name == "containerd":
		return partContainerd
	case strings.HasPrefix(p.name, "containerd-shim"):
		return partShims
	case pid == 2 || p.parent == 2:
		return partKernel
	}
	// What a shim has started, and what that has started.
	for up, ok := s.processes[p.parent]; ok; up, ok = s.processes[up.parent] {
		if strings.HasPrefix(up.name, "containerd-shim") {
			return partPods
		}
	}
	return partOther
}

// memory is what the processes of a part have in RAM: all of it, and the
// anonymous share.
func (s *sample) memory(agent string, of part) (rss, anon int64) {
	for pid, p := range s.processes {
		if s.partOf(pid, agent) == of {
			rss += p.rss
			anon += p.anon
		}
	}
	return rss, anon
}

// agentPID is the process of the agent.
func (s *sample) agentPID(agent string) (int, error) {
	pid := 0
	for n := range s.processes {
		if s.partOf(n, agent) != partAgent {
			continue
		}
		if pid != 0 {
			return 0, fmt.Errorf("find %s: processes %d and %d", agent, pid, n)
		}
		pid = n
	}
	if pid == 0 {
		return 0, fmt.Errorf("find %s: no such process", agent)
	}
	return pid, nil
}

// window is what happened on a board between two samples.
type window struct {
	took     time.Duration
	cpu      [parts]time.Duration
	busy     time.Duration // of all processors, whoever worked
	received int64
	sent     int64
	written  int64
}

// since is the window that began with an earlier sample. What a process used
// that has ended meanwhile is in busy alone.
func (s *sample) since(before *sample, agent string) (window, error) {
	w := window{
		took: s.at - before.at, received: s.received - before.received,
		sent: s.sent - before.sent, written: s.written - before.written,
	}
	if w.took <= 0 {
		return w, fmt.Errorf("measure a window: it took %v", w.took)
	}
	was, err := before.agentPID(agent)
	if err != nil {
		return w, err
	}
	is, err := s.agentPID(agent)
	if err != nil {
		return w, err
	}
	if was != is {
		return w, fmt.Errorf("measure a window: %s has ended in it and was started again", agent)
	}
	w.busy = max(0, w.took*time.Duration(s.cpus)-(s.idle-before.idle))
	for pid, p := range s.processes {
		used := p.cpu
		if old, ok := before.processes[pid]; ok && old.name == p.name {
			used -= old.cpu
		}
		w.cpu[s.partOf(pid, agent)] += used
	}
	return w, nil
}

// perSecond is a time of work in milliseconds for each second of the window.
func (w window) perSecond(work time.Duration) float64 {
	return float64(work.Microseconds()) / 1000 / w.took.Seconds()
}

// perHour is a number of bytes, scaled to an hour.
func (w window) perHour(bytes int64) float64 {
	return float64(bytes) * time.Hour.Seconds() / w.took.Seconds()
}
