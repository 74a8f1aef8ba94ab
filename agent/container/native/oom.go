package native

import (
	"errors"

	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/cgroups"
)

// cgroupOf returns the path of the cgroup of a container.
func cgroupOf(s *podSandbox, id string) string {
	return spec.ContainerCgroup(s.config.GetLinux().GetCgroupParent(), id)
}

// watchOOM watches for the OOM killer in the scope of a container that starts or runs. systemd
// removes a scope with its last process, so that its cgroup may be gone before the end is
// handled.
func (d *Driver) watchOOM(s *podSandbox, c *podContainer) {
	if !d.Systemd {
		return
	}
	watch, err := d.Poller.WatchMemory(cgroupOf(s, c.id), 0, func(e cgroups.MemoryEvents, err error) {
		if err == nil && e.OOMKill.Value > 0 {
			c.oomKilled.Store(true)
		}
	})
	if err != nil {
		if !errors.Is(err, cgroups.ErrNotFound) { // it has ended
			d.Log.Warn("cannot watch memory events", "container", c.id, "error", err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = watch
}

// unwatchOOM ends the watch of a container.
func (c *podContainer) unwatchOOM() {
	c.mu.Lock()
	watch := c.watch
	c.watch = nil
	c.mu.Unlock()
	if watch != nil {
		watch.Close()
	}
}

// outOfMemory reports whether the OOM killer has killed a process of a container. The
// container's cgroup must not have been removed, unless it was watched.
func (d *Driver) outOfMemory(c *podContainer) bool {
	s := d.findSandbox(c.sandboxID)
	if s == nil || c.oomKilled.Load() {
		return c.oomKilled.Load()
	}
	var stats cgroups.Stats
	if err := d.Cgroups.NewReader().Read(cgroupOf(s, c.id), cgroups.PartEvents, &stats); err != nil {
		if !errors.Is(err, cgroups.ErrNotFound) {
			d.Log.Warn("cannot read memory events", "container", c.id, "error", err)
		}
		return false
	}
	return stats.Events.OOMKill.Value > 0
}
