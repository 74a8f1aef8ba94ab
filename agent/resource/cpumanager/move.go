package cpumanager

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
)

// When a container that could not be moved is tried again: soon, and later if
// it fails again and again.
const (
	retrySoon  = 2 * time.Second
	retryLater = time.Minute
)

// Run moves containers to where they belong until ctx ends, and returns its
// cause. It sleeps while no pod changes.
func (m *Manager) Run(ctx context.Context) error {
	cancel := m.cfg.Notify(m.sign)
	defer cancel()
	wait := retrySoon
	retry := time.NewTimer(wait)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.sign:
		case <-retry.C:
			m.waiting = false
		}
		m.move(ctx)
		switch {
		case len(m.failed) == 0:
			wait, m.waiting = retrySoon, false
			retry.Stop()
		case !m.waiting:
			m.waiting = true
			retry.Reset(wait)
			wait = min(2*wait, retryLater)
		}
	}
}

// who is a container that runs.
type who struct {
	uid  types.UID
	name string
}

// move looks at all that runs. What fails is in failed, and not tried again
// while that waits.
func (m *Manager) move(ctx context.Context) {
	m.mu.Lock()
	ready := m.policy != nil
	m.mu.Unlock()
	if !ready {
		return // the first pod that asks makes it so
	}
	ids := m.running()
	runs := make(map[string]bool, len(ids))
	var running []policy.Container
	for w, id := range ids {
		runs[id] = true
		if m.waiting && m.failed[id] > 0 {
			continue
		}
		on, known := m.on[id]
		if !known {
			var err error
			if on, err = m.runsOn(ctx, w.uid, id); err != nil {
				m.fail(id, err)
				continue
			}
			m.on[id] = on
		}
		running = append(running, policy.Container{PodUID: w.uid, Name: w.name, CPUs: on})
	}
	gone := func(id string) bool { return !runs[id] }
	maps.DeleteFunc(m.on, func(id string, _ policy.Set) bool { return gone(id) })
	maps.DeleteFunc(m.failed, func(id string, _ int) bool { return gone(id) })
	m.mu.Lock()
	changes := m.policy.Changes(running)
	m.mu.Unlock()
	for _, c := range changes {
		w := who{c.PodUID, c.Name}
		id := ids[w]
		if err := m.put(ctx, c, id); err != nil {
			m.fail(id, err)
			continue
		}
		m.on[id] = c.CPUs
		delete(m.failed, id)
	}
}

// running are the IDs of all that runs.
func (m *Manager) running() map[who]string {
	ids := make(map[who]string)
	for _, p := range m.cfg.Pods() {
		for name, id := range p.Running {
			ids[who{p.Pod.UID, name}] = id
		}
	}
	return ids
}

// put moves one container. Where the runtime cannot, its cgroup is written.
// That goes first where the kernel does not account swap: a container may have
// been resized past the runtime there, which would write what it knows of it
// again.
func (m *Manager) put(ctx context.Context, c policy.Container, id string) error {
	list := c.CPUs.String()
	if node, ok := m.cfg.Node(); ok && !node.SwapAccounting && m.write(c.PodUID, id, list) {
		return nil
	}
	err := m.cfg.Runtime.UpdateContainerResources(ctx, id, &runtimeapi.LinuxContainerResources{CpusetCpus: list})
	if err == nil || errors.Is(err, container.ErrNotFound) || errors.Is(err, container.ErrUnavailable) {
		return err
	}
	if !m.write(c.PodUID, id, list) {
		return err
	}
	m.cfg.Log.Debug("the runtime does not move a container to other CPUs; its cgroup was written", "podUID", c.PodUID, "container", c.Name, "cpus", list, "error", err)
	return nil
}

// write writes a container's cgroup, and says whether that was done.
func (m *Manager) write(uid types.UID, id, list string) (written bool) {
	m.groups(uid, id, func(path string) bool {
		written = m.cfg.Tree.SetCPUs(path, list) == nil
		return written
	})
	return written
}

// fail notes that a container was not moved. One that is gone needs not be.
func (m *Manager) fail(id string, err error) {
	delete(m.on, id)
	if errors.Is(err, container.ErrNotFound) {
		delete(m.failed, id)
		return
	}
	m.failed[id]++
	level := slog.LevelWarn
	if m.failed[id] > 1 {
		level = slog.LevelDebug
	}
	m.cfg.Log.Log(context.Background(), level, "a container was not moved to the CPUs that it is to run on, which is tried again", "id", id, "error", err)
}
