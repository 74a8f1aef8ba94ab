package podsync

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// ListOrphans lists the UIDs of all pods that have a directory, logs, a cgroup or a
// recorded allocation on this node. The caller excludes the desired pods. With an error
// it also returns the UIDs that it found. It reads directories and makes no call to the
// runtime or the API server. It also begins to unmount the NFS volumes of ended pods,
// without waiting for the result.
func (s *Syncer) ListOrphans() ([]types.UID, error) {
	found := make(map[types.UID]struct{})
	s.Volumes.UnmountIdle(0) // the next call observes the result
	volumes, err := s.Volumes.Orphans()
	errs := []error{err}
	for _, uid := range append(volumes, s.Allocations.UIDs()...) {
		found[uid] = struct{}{}
	}
	if node, ok := s.PeekNode(); ok {
		errs = append(errs, orphanedLogs(node, found))
		if s.Cgroups != nil {
			errs = append(errs, s.orphanedCgroups(node, found))
		}
	}
	return slices.Collect(maps.Keys(found)), errors.Join(errs...)
}

// orphanedLogs finds the pods' log directories, named namespace_name_uid.
func orphanedLogs(n *criconfig.Node, found map[types.UID]struct{}) error {
	entries, err := os.ReadDir(cmp.Or(n.PodLogsDir, criconfig.DefaultPodLogsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pod log directories: %w", err)
	}
	for _, e := range entries {
		// Neither a namespace nor a name has an underscore.
		if parts := strings.Split(e.Name(), "_"); e.IsDir() && len(parts) == 3 && parts[2] != "" {
			found[types.UID(parts[2])] = struct{}{}
		}
	}
	return nil
}

// orphanedCgroups finds the pods' cgroups. It omits those of known pods: the name of a
// systemd slice does not determine the UID, so the caller could not exclude them.
func (s *Syncer) orphanedCgroups(n *criconfig.Node, found map[types.UID]struct{}) error {
	known := make(map[string]bool)
	for _, e := range s.Statuses.List() {
		known[path.Base(criconfig.PodCgroup(e.Pod, n))] = true
	}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		names, err := s.Cgroups.List(criconfig.QoSCgroup(class, n))
		if err != nil && !errors.Is(err, cgroups.ErrNotFound) {
			errs = append(errs, fmt.Errorf("list pod cgroups: %w", err))
		}
		for _, name := range names {
			if uid, ok := criconfig.PodUIDOfCgroup(name, class, n); ok && !known[name] {
				found[uid] = struct{}{}
			}
		}
	}
	return errors.Join(errs...)
}

// reasonVolumeKept is the event reason for foreign volumes, which stay when their pod has
// ended.
const reasonVolumeKept = "VolumeKept"

// reportForeignVolumes emits an event for the pod and one for the node, once, if foreign
// volumes stay in the directory of a pod that has ended.
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
