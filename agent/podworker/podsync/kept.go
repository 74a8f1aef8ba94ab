package podsync

import (
	"fmt"

	"github.com/tinylet/tinylet/agent/pod"
)

// reasonVolumeKept is the event reason for volumes of unsupported plugins,
// which stay when their pod has ended.
const reasonVolumeKept = "VolumeKept"

// tellKept emits an event, once, for the foreign volumes that stay in the
// directory of a pod that has ended.
func (s *Syncer) tellKept(ref pod.Ref) {
	f := s.factsOf(ref.UID)
	if f.kept {
		return
	}
	foreign, err := s.Volumes.Foreign(ref.UID)
	if err != nil {
		s.Log.Warn("cannot list foreign volumes of pod", "pod", ref.String(), "podUID", ref.UID, "error", err)
		return
	}
	if len(foreign) == 0 {
		return
	}
	f.kept = true
	todo := s.Volumes.Todo(ref.UID, foreign)
	name := fmt.Sprintf("pod %s terminated", ref)
	if ref.Name != "" {
		s.Events.Warning(ref, reasonVolumeKept, todo)
	} else {
		name = fmt.Sprintf("orphaned pod %s", ref.UID)
	}
	s.Events.Warning(pod.Ref{}, reasonVolumeKept, name+": "+todo)
}
