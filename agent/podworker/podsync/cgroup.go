package podsync

import (
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// Cgroups creates and removes pods' cgroups. cgroups.Tree does it through the
// kernel's files and cgroups.Slices through systemd. Both keep the guarantees
// of Tree.
type Cgroups interface {
	Ensure(path string, r cgroups.Resources) error
	Delete(path string) error
	Kill(path string) error
	Exists(path string) bool
	ID(path string) (uint64, error)
	List(path string) ([]string, error)
	Set(path string, r cgroups.Resources) error
	Limits(path string) (cgroups.Limits, error)
	MemoryCurrent(path string) (uint64, error)
	Spare(path string, r cgroups.Resources) (spared cgroups.Resources, tooLow bool)
}

// The operations on cgroups, with the labels of
// kubelet_cgroup_manager_duration_seconds
// (pkg/kubelet/cm/cgroup_manager_linux.go).
var (
	createCgroup  = metrics.AppendLabel(nil, "operation_type", "create")
	updateCgroup  = metrics.AppendLabel(nil, "operation_type", "update")
	destroyCgroup = metrics.AppendLabel(nil, "operation_type", "destroy")
)

// ensureCgroup creates a cgroup, or updates it.
func (s *Syncer) ensureCgroup(path string, r cgroups.Resources) error {
	operation, begun := createCgroup, s.now()
	if s.Cgroups.Exists(path) {
		operation = updateCgroup
	}
	err := s.Cgroups.Ensure(path, r)
	s.counted.cgroups.Observe(operation, s.now().Sub(begun), err)
	return err
}

// deleteCgroup removes a cgroup with its descendants.
func (s *Syncer) deleteCgroup(path string) error {
	begun := s.now()
	err := s.Cgroups.Delete(path)
	s.counted.cgroups.Observe(destroyCgroup, s.now().Sub(begun), err)
	return err
}
