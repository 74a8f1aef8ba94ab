package podsync

import (
	"fmt"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
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
		r, tooLow := s.Cgroups.Spare(g.Path, g.Resources)
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
		if s.groups.written == nil {
			s.groups.written = map[string]writtenCgroup{}
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
