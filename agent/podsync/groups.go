package podsync

import (
	"fmt"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// groups are the cgroups above those of the pods. What they have follows from
// the pods, so that it is reckoned by one worker at a time: the last one wins.
type groups struct {
	mu      sync.Mutex
	written map[string]cgroups.Resources // by path
}

// ensureGroups brings the groups above the pods' up to date: as a pod starts,
// and as one is gone.
func (s *Syncer) ensureGroups(n *criconfig.Node, gone types.UID) error {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	for _, g := range criconfig.Groups(s.live(gone), n) {
		if was, ok := s.groups.written[g.Path]; ok && reflect.DeepEqual(was, g.Resources) && s.Cgroups.Exists(g.Path) {
			continue
		}
		r, err := s.withoutHarm(g)
		if err != nil {
			return err
		}
		if err := s.ensureCgroup(g.Path, r); err != nil {
			return fmt.Errorf("cgroup of all pods of a class: %w", err)
		}
		if s.groups.written == nil {
			s.groups.written = map[string]cgroups.Resources{}
		}
		s.groups.written[g.Path] = r
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

// withoutHarm leaves a memory limit out that is below what the group uses, as
// after a change of the configuration: the kernel would kill in it at once.
// Eviction brings the use down, and the limit is written at the next pod.
func (s *Syncer) withoutHarm(g criconfig.Group) (cgroups.Resources, error) {
	r := g.Resources
	if r.MemoryMax <= 0 || !s.Cgroups.Exists(g.Path) {
		return r, nil
	}
	if missing, err := s.Cgroups.Missing("memory"); err != nil || len(missing) > 0 {
		return r, err
	}
	current, err := s.Cgroups.MemoryCurrent(g.Path)
	if err != nil {
		return r, nil //nolint:nilerr // not delegated yet: nothing is counted that could be above
	}
	if current > uint64(r.MemoryMax) {
		s.Log.Warn("pods use more memory than is theirs: their limit waits until they use less", "cgroup", g.Path, "used", current, "limit", r.MemoryMax)
		r.MemoryMax = 0
	}
	return r, nil
}
