package eviction

import (
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/cgroups"
)

// observer returns a function that measures the signals of the thresholds: it reads a
// few small files and the space of each file system. It is for one goroutine. If the pods' cgroup
// cannot be read, its signal is unknown, without a warning.
func (m *Manager) observer(fs *fileSystems, n *notifier) func() evictionapi.Observations {
	var reader *cgroups.Reader
	if m.Tree != nil {
		reader = m.Tree.NewReader()
	}
	failing := make(map[string]bool) // what could not be measured at the last check
	warn := func(what string, err error) {
		if err != nil && !failing[what] {
			m.Log.Warn("cannot measure all eviction signals", "error", err)
		}
		failing[what] = err != nil
	}
	return func() (o evictionapi.Observations) {
		now := time.Now()
		pods, known := m.allPodsCgroup()
		n.watch(pods, m.Thresholds)
		load, err := m.ReadLoad(now)
		warn("load", err)
		if err == nil && reader != nil {
			warn("memory", m.observeMemory(&o, reader, &load, now))
			if known {
				observePods(&o, reader, pods, now)
			}
		}
		if load.MaxTasks > 0 && load.Tasks > 0 {
			o[evictionapi.PIDAvailable] = observation(load.MaxTasks-load.Tasks, load.MaxTasks, now)
		}
		warn("disks", m.observeDisks(&o, fs, now))
		return o
	}
}

// allPodsCgroup returns the cgroup that contains the cgroups of all pods; ok is false
// until the runtime has reported its cgroup driver.
func (m *Manager) allPodsCgroup() (cgroup string, ok bool) {
	n, ok := m.Node()
	if !ok {
		return "", false
	}
	return criconfig.QoSCgroup(v1.PodQOSGuaranteed, n), true
}

func observation(available, capacity int64, now time.Time) evictionapi.Observation {
	return evictionapi.Observation{Available: max(available, 0), Capacity: capacity, Time: now, Known: true}
}

// observeMemory computes memory.available as the Summary API does: capacity minus the
// working set of the root cgroup. That working set lacks the kernel's own memory: page
// tables, stacks, slabs. On a board of 256 MB the kernel has more of these than the
// threshold leaves, so by the working set alone the threshold would never be met.
// Therefore the kernel's own estimate counts where it is lower, without the pages of the
// agent and the runtime that it counts as available although their cgroup protects them.
// It counts alone if the working set is unknown, for which the error is returned.
func (m *Manager) observeMemory(o *evictionapi.Observations, reader *cgroups.Reader, load *machine.Load, now time.Time) error {
	var f cgroups.Stats
	available := load.Memory
	err := reader.Read("/", cgroups.PartMemory, &f)
	if used := f.Memory.WorkingSet(); err == nil && used.Known {
		available -= min(used.Value, load.Memory)
	} else {
		if err == nil {
			err = errors.New("no statistics")
		}
		err = fmt.Errorf("measure working set of the root cgroup for %s: %w", evictionapi.MemoryAvailable, err)
		if !load.AvailableKnown {
			return err
		}
	}
	if load.AvailableKnown {
		available = min(available, load.Available-min(m.protectedPageCache(reader), load.Available))
	}
	o[evictionapi.MemoryAvailable] = observation(int64Of(available), int64Of(load.Memory), now)
	return err
}

// protectedPageCache returns the bytes of page cache that the kernel does not reclaim
// from the cgroup of the agent and the runtime: all of it, less the amount by which the
// cgroup exceeds its memory.min.
func (m *Manager) protectedPageCache(reader *cgroups.Reader) uint64 {
	var f cgroups.Stats
	if m.AgentCgroup == "" || reader.Read(m.AgentCgroup, cgroups.PartMemory, &f) != nil || !f.Memory.Current.Known || !f.Memory.File.Known {
		return 0
	}
	protection, err := m.Tree.MemoryMin(m.AgentCgroup)
	if err != nil {
		return 0
	}
	file := f.Memory.File.Value
	if active, inactive := f.Memory.ActiveFile, f.Memory.InactiveFile; active.Known && inactive.Known {
		file = min(file, active.Value+inactive.Value) // the estimate does not count locked pages
	}
	over := f.Memory.Current.Value - min(protection, f.Memory.Current.Value)
	return file - min(over, file)
}

// observePods computes allocatableMemory.available where the cgroup of all pods has a
// limit.
func observePods(o *evictionapi.Observations, reader *cgroups.Reader, pods string, now time.Time) {
	var f cgroups.Stats
	if reader.Read(pods, cgroups.PartMemory|cgroups.PartMemoryMax, &f) != nil {
		return // no pod has a cgroup yet
	}
	used, limit := f.Memory.WorkingSet(), f.Memory.Max
	if !used.Known || !limit.Known || limit.Value == cgroups.NoLimit {
		return
	}
	o[evictionapi.AllocatableMemoryAvailable] = observation(int64Of(limit.Value-min(used.Value, limit.Value)), int64Of(limit.Value), now)
}

// observeDisks measures each file system once. An error of one does not hide the others.
func (m *Manager) observeDisks(o *evictionapi.Observations, fs *fileSystems, now time.Time) error {
	type measured struct {
		diskusage.Space
		err error
	}
	at := func(path string, parent measured) measured {
		if path == "" {
			return parent
		}
		space, err := m.Space(path)
		return measured{space, err}
	}
	nodeFs := at(m.RootDir, measured{})
	imageFs := at(fs.images, nodeFs)
	containerFs := at(fs.containers, imageFs)
	var failed error
	for _, of := range [...]struct {
		*measured
		bytes, inodes evictionapi.Signal
	}{
		{&nodeFs, evictionapi.NodeFsAvailable, evictionapi.NodeFsInodesFree},
		{&imageFs, evictionapi.ImageFsAvailable, evictionapi.ImageFsInodesFree},
		{&containerFs, evictionapi.ContainerFsAvailable, evictionapi.ContainerFsInodesFree},
	} {
		if of.err != nil {
			failed = of.err
			continue
		}
		o[of.bytes] = observation(of.Available, of.Capacity, now)
		if of.Inodes > 0 {
			o[of.inodes] = observation(of.InodesFree, of.Inodes, now)
		}
	}
	return failed
}

func int64Of(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
