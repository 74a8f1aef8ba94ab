package podsync

import (
	"context"
	"path/filepath"
	"time"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// claimTimeout is the timeout of the requests for all claims together, since the API server
// may be unreachable. Most claims are cached.
const claimTimeout = time.Second

// DiskPods returns the directories of all pods, for the disk usage meter. It blocks on the
// disk, and on the API server for at most claimTimeout.
func (s *Syncer) DiskPods(ctx context.Context) []diskusage.Pod {
	node, known := s.PeekNode()
	entries := s.Statuses.List()
	out := make([]diskusage.Pod, 0, len(entries))
	limited, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	for i := range entries {
		e := &entries[i]
		d := diskusage.Pod{UID: string(e.Pod.UID), Namespace: e.Pod.Namespace}
		d.Volumes, d.Other = s.Volumes.UsagePaths(e.Pod, func(claim string) string {
			c, err := s.Objects.PersistentVolumeClaim(limited, e.Pod.Namespace, claim)
			if err != nil {
				return "" // the usage of its volume is omitted
			}
			return c.Spec.VolumeName
		})
		for c := range pod.Containers(&e.Pod.Spec) {
			of := diskusage.Container{Name: c.Name}
			if st := pod.FindContainerStatus(e.Status, c.Name); st != nil && st.State.Running != nil {
				of.ID = pod.ContainerID(st)
			}
			if known {
				of.Logs = diskusage.Place{Root: node.PodLogsDir, Path: filepath.Join(filepath.Base(criconfig.LogDirectory(e.Pod, node)), c.Name)}
			}
			d.Containers = append(d.Containers, of)
		}
		out = append(out, d)
	}
	return out
}
