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

// Bounds of the backoff after a failed update.
const (
	retrySoon  = 2 * time.Second
	retryLater = time.Minute
)

// Run updates the cpusets of running containers until ctx ends, and returns its
// cause. It sleeps while no pod changes.
func (m *Manager) Run(ctx context.Context) error {
	cancel := m.cfg.Notify(m.triggered)
	defer cancel()
	wait := retrySoon
	retry := time.NewTimer(wait)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.triggered:
		case <-retry.C:
			m.retryScheduled = false
		}
		m.reconcile(ctx)
		switch {
		case len(m.failed) == 0:
			wait, m.retryScheduled = retrySoon, false
			retry.Stop()
		case !m.retryScheduled:
			m.retryScheduled = true
			retry.Reset(wait)
			wait = min(2*wait, retryLater)
		}
	}
}

type containerKey struct {
	uid  types.UID
	name string
}

// reconcile updates all running containers whose cpuset differs. It records failures in
// failed, and skips failed containers while a retry is scheduled.
func (m *Manager) reconcile(ctx context.Context) {
	m.mu.Lock()
	ready := m.policy != nil
	m.mu.Unlock()
	if !ready {
		return // the first allocation restores the policy
	}
	ids := m.running()
	runs := make(map[string]bool, len(ids))
	var running []policy.Container
	for w, id := range ids {
		runs[id] = true
		if m.retryScheduled && m.failed[id] > 0 {
			continue
		}
		on, known := m.cpusets[id]
		if !known {
			var err error
			if on, err = m.cpusetOf(ctx, w.uid, id); err != nil {
				m.fail(id, err)
				continue
			}
			m.cpusets[id] = on
		}
		running = append(running, policy.Container{PodUID: w.uid, Name: w.name, CPUs: on})
	}
	gone := func(id string) bool { return !runs[id] }
	maps.DeleteFunc(m.cpusets, func(id string, _ policy.Set) bool { return gone(id) })
	maps.DeleteFunc(m.failed, func(id string, _ int) bool { return gone(id) })
	m.mu.Lock()
	changes := m.policy.Changes(running)
	m.mu.Unlock()
	for _, c := range changes {
		w := containerKey{c.PodUID, c.Name}
		id := ids[w]
		if err := m.updateCpuset(ctx, c, id); err != nil {
			m.fail(id, err)
			continue
		}
		m.cpusets[id] = c.CPUs
		delete(m.failed, id)
	}
}

// running returns the IDs of all running containers.
func (m *Manager) running() map[containerKey]string {
	ids := make(map[containerKey]string)
	for _, p := range m.cfg.Pods() {
		for c := range p.Running() {
			ids[containerKey{p.Pod.UID, c.Name}] = c.ID
		}
	}
	return ids
}

// updateCpuset updates the cpuset of one container through the runtime, or writes its cgroup
// if the runtime cannot. On a kernel without swap accounting it writes the cgroup
// first: there a container may have been resized directly in its cgroup, and an
// update through the runtime would restore the old values.
func (m *Manager) updateCpuset(ctx context.Context, c policy.Container, id string) error {
	list := c.CPUs.String()
	if node, ok := m.cfg.Node(); ok && !node.SwapAccounting && m.writeCgroup(c.PodUID, id, list) {
		return nil
	}
	err := m.cfg.Runtime.UpdateContainerResources(ctx, id, &runtimeapi.LinuxContainerResources{CpusetCpus: list})
	if err == nil || errors.Is(err, container.ErrNotFound) || errors.Is(err, container.ErrUnavailable) {
		return err
	}
	if !m.writeCgroup(c.PodUID, id, list) {
		return err
	}
	m.cfg.Log.Debug("runtime cannot update cpuset, wrote cgroup", "podUID", c.PodUID, "container", c.Name, "cpus", list, "error", err)
	return nil
}

// writeCgroup writes the cpuset of a container's cgroup, and reports whether it succeeded.
func (m *Manager) writeCgroup(uid types.UID, id, list string) (written bool) {
	m.eachCgroup(uid, id, func(path string) bool {
		written = m.cfg.Tree.SetCPUs(path, list) == nil
		return written
	})
	return written
}

// fail records a failed update. A container that no longer exists needs none.
func (m *Manager) fail(id string, err error) {
	delete(m.cpusets, id)
	if errors.Is(err, container.ErrNotFound) {
		delete(m.failed, id)
		return
	}
	m.failed[id]++
	level := slog.LevelWarn
	if m.failed[id] > 1 {
		level = slog.LevelDebug
	}
	m.cfg.Log.Log(context.Background(), level, "cannot update container cpuset, will retry", "containerID", id, "error", err)
}
