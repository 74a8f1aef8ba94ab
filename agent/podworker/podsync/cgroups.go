package podsync

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// parentCgroups are the cgroups above those of the pods. Their resources follow from
// the pods. Workers compute them one at a time, so that the last result is
// written last.
type parentCgroups struct {
	mu              sync.Mutex
	written         map[string]writtenCgroup // by cgroup path
	bestEffortLimit cgroups.CPUMax           // of BestEffort pods
}

// writtenCgroup is what a cgroup was given. A cgroup with another id, such as a
// systemd slice that was made again after it had no pod for a while, has none
// of it.
type writtenCgroup struct {
	id uint64
	r  cgroups.Resources
}

// ensureGroups updates the cgroups above the pods', when a pod starts and when
// the pod gone has ended.
func (s *Syncer) ensureGroups(n *criconfig.Node, gone types.UID) error {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	for _, g := range criconfig.ParentCgroups(s.livePods(gone), n) {
		if g.Path == criconfig.QoSCgroup(v1.PodQOSBestEffort, n) {
			g.Resources.CPUMax = s.groups.bestEffortLimit
		}
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

// livePods returns the pods that may have something running, except for gone.
func (s *Syncer) livePods(gone types.UID) []*v1.Pod {
	entries := s.Statuses.List()
	pods := make([]*v1.Pod, 0, len(entries))
	for i := range entries {
		if phase := entries[i].Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed && entries[i].Pod.UID != gone {
			pods = append(pods, entries[i].Pod)
		}
	}
	return pods
}

// throttlePeriod is the kernel's default period of cpu.max, in microseconds.
// minThrottleQuota is the smallest quota that a share leaves to pods.
const (
	throttlePeriod   = 100_000
	minThrottleQuota = 1_000
)

// errNoCgroups means that there is no cgroup yet through which to throttle pods.
var errNoCgroups = errors.New("throttle BestEffort pods: the agent makes no pod cgroups or the runtime has not reported its settings yet")

// ThrottleBestEffort limits all BestEffort pods together to a share of the node's CPU
// time, from 0 to 1, for a board that is too hot or undervolted. A share of 1
// or more removes the limit. The limit also applies to pods that start later,
// until the next call. Relieve blocks only on the kernel.
func (s *Syncer) ThrottleBestEffort(share float64) error {
	n, ok := s.PeekNode()
	if !ok || s.Cgroups == nil {
		return errNoCgroups
	}
	limit := cgroups.CPUMax{Quota: cgroups.Unlimited, Period: throttlePeriod}
	if share < 1 {
		limit.Quota = max(int64(share*float64(runtime.NumCPU())*throttlePeriod), minThrottleQuota)
	}
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	s.groups.bestEffortLimit = limit
	return s.ensureCgroup(criconfig.QoSCgroup(v1.PodQOSBestEffort, n), cgroups.Resources{CPUMax: limit})
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
