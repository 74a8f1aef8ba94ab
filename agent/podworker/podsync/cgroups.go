package podsync

import (
	"fmt"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// parentCgroups are the cgroups above those of the pods. Their resources depend on
// the pods. The lock is held from the computation until the write, so that the newest
// result is written last.
type parentCgroups struct {
	mu      sync.Mutex
	written map[string]writtenCgroup // by cgroup path
}

// writtenCgroup has the resources that were written to a cgroup. A cgroup with another id,
// such as a systemd slice that was removed without pods and created again, does not have
// them.
type writtenCgroup struct {
	id uint64
	r  cgroups.Resources
}

// ensureGroups creates or updates the cgroups above those of the pods. It does not write
// resources that it has written before. gone is a pod that has ended and does not count; it
// may be empty.
func (s *Syncer) ensureGroups(n *criconfig.Node, gone types.UID) error {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	for _, g := range criconfig.ParentCgroups(s.livePods(gone), n) {
		was, ok := s.groups.written[g.Path]
		if id, err := s.Cgroups.ID(g.Path); ok && err == nil && id == was.id && reflect.DeepEqual(was.r, g.Resources) {
			continue
		}
		r, tooLow := s.Cgroups.WithoutLowMemoryMax(g.Path, g.Resources)
		if tooLow { // such as after a change of the configuration; eviction lowers the usage
			s.Log.Warn("defer memory limit below current usage", "cgroup", g.Path, "limit", g.Resources.MemoryMax)
		}
		if err := s.ensureCgroup(g.Path, r); err != nil {
			return fmt.Errorf("cgroup of all pods of a class: %w", err)
		}
		id, err := s.Cgroups.ID(g.Path)
		if err != nil {
			return fmt.Errorf("cgroup of all pods of a class: %w", err)
		}
		s.groups.written[g.Path] = writtenCgroup{id, r}
	}
	return nil
}

// livePods returns the pods without a terminal phase, except for gone.
func (s *Syncer) livePods(gone types.UID) (pods []*v1.Pod) {
	for _, e := range s.Statuses.List() {
		if !pod.IsTerminal(e.Status.Phase) && e.Pod.UID != gone {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

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
	WithoutLowMemoryMax(path string, r cgroups.Resources) (_ cgroups.Resources, tooLow bool)
}

// The operations on cgroups, with the labels of
// kubelet_cgroup_manager_duration_seconds
// (pkg/kubelet/cm/cgroup_manager_linux.go).
var (
	createCgroup  = metrics.AppendLabel(nil, "operation_type", "create")
	updateCgroup  = metrics.AppendLabel(nil, "operation_type", "update")
	destroyCgroup = metrics.AppendLabel(nil, "operation_type", "destroy")
)

func (s *Syncer) ensureCgroup(path string, r cgroups.Resources) error {
	operation, begun := createCgroup, s.now()
	if s.Cgroups.Exists(path) {
		operation = updateCgroup
	}
	err := s.Cgroups.Ensure(path, r)
	s.counted.cgroups.Observe(operation, s.now().Sub(begun), err)
	return err
}

func (s *Syncer) deleteCgroup(path string) error {
	begun := s.now()
	err := s.Cgroups.Delete(path)
	s.counted.cgroups.Observe(destroyCgroup, s.now().Sub(begun), err)
	return err
}
