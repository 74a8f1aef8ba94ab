package podsync

import (
	"fmt"

	"github.com/tinylet/tinylet/agent/pod"
)

// reasonVolumeKept is the event reason for volumes of unsupported plugins,
// which stay when their pod has ended.
const reasonVolumeKept = "VolumeKept"

// reportForeignVolumes emits an event, once, for the foreign volumes that stay in the
// directory of a pod that has ended.
func (s *Syncer) reportForeignVolumes(ref pod.Ref) {
	f := s.stateOf(ref.UID)
	if f.foreignReported {
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
	f.foreignReported = true
	todo := s.Volumes.ActionRequired(ref.UID, foreign)
	name := fmt.Sprintf("pod %s terminated", ref)
	if ref.Name != "" {
		s.Events.Warning(ref, reasonVolumeKept, todo)
	} else {
		name = fmt.Sprintf("orphaned pod %s", ref.UID)
	}
	s.Events.Warning(pod.Ref{}, reasonVolumeKept, name+": "+todo)
}
