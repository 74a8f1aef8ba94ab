package podsync

import (
	"fmt"

	"github.com/tinylet/tinylet/agent/pod"
)

// reasonVolumeKept is for volumes of plugins that this agent does not have,
// which stay when their pod has ended.
const reasonVolumeKept = "VolumeKept"

// tellKept tells once of the foreign volumes that stay in the directory of a
// pod that has ended.
func (s *Syncer) tellKept(ref pod.Ref) {
	f := s.factsOf(ref.UID)
	if f.kept {
		return
	}
	foreign, err := s.Volumes.Foreign(ref.UID)
	if err != nil {
		s.Log.Warn("foreign volumes of a pod are not known", "pod", ref.String(), "podUID", ref.UID, "error", err)
		return
	}
	if len(foreign) == 0 {
		return
	}
	f.kept = true
	todo := s.Volumes.Todo(ref.UID, foreign)
	name := fmt.Sprintf("pod %s has ended", ref)
	if ref.Name != "" {
		s.Events.Warning(ref, reasonVolumeKept, todo)
	} else {
		name = fmt.Sprintf("pod %s is gone", ref.UID)
	}
	s.Events.Warning(pod.Ref{}, reasonVolumeKept, name+": "+todo)
}
