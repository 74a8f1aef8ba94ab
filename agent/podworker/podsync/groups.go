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

// groups are the cgroups above those of the pods. What they have follows from
// the pods, so that it is reckoned by one worker at a time: the last one wins.
type groups struct {
	mu      sync.Mutex
	written map[string]written // by path
	relief  cgroups.CPUMax     // of BestEffort pods
}

// written is what a group was given: one that has taken its place since, as
// systemd's slice does that no pod was in for a while, has nothing of it.
type written struct {
	id uint64
	r  cgroups.Resources
}

// ensureGroups brings the groups above the pods' up to date: as a pod starts,
// and as one is gone.
func (s *Syncer) ensureGroups(n *criconfig.Node, gone types.UID) error {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	for _, g := range criconfig.Groups(s.live(gone), n) {
		if g.Path == criconfig.QoSCgroup(v1.PodQOSBestEffort, n) {
			g.Resources.CPUMax = s.groups.relief
		}
		was, ok := s.groups.written[g.Path]
		if id, err := s.Cgroups.ID(g.Path); ok && err == nil && id == was.id && reflect.DeepEqual(was.r, g.Resources) {
			continue
		}
		r, tooLow := s.Cgroups.Spare(g.Path, g.Resources)
		if tooLow { // as after a change of the configuration: eviction brings the use down
			s.Log.Warn("pods use more memory than is theirs: their limit waits until they use less", "cgroup", g.Path, "limit", g.Resources.MemoryMax)
		}
		if err := s.ensureCgroup(g.Path, r); err != nil {
			return fmt.Errorf("cgroup of all pods of a class: %w", err)
		}
		id, err := s.Cgroups.ID(g.Path)
		if err != nil {
			return fmt.Errorf("cgroup of all pods of a class: %w", err)
		}
		if s.groups.written == nil {
			s.groups.written = map[string]written{}
		}
		s.groups.written[g.Path] = written{id, r}
	}
	return nil
}

// live are the pods that may have something that runs, without one that is
// gone.
func (s *Syncer) live(gone types.UID) []*v1.Pod {
	entries := s.Statuses.List()
	pods := make([]*v1.Pod, 0, len(entries))
	for i := range entries {
		if phase := entries[i].Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed && entries[i].Pod.UID != gone {
			pods = append(pods, entries[i].Pod)
		}
	}
	return pods
}
