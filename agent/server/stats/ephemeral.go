package stats

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// ephemeralStorage returns the sum of a pod's ephemeral storage: writable layers, logs
// and local volumes (calcEphemeralStorage in pkg/kubelet/stats/helper.go). It
// returns nil if nothing of it is known.
func ephemeralStorage(disk *diskusage.PodUsage, nodeFs *statsapi.FsStats) *statsapi.FsStats {
	var out statsapi.FsStats
	add := func(f *statsapi.FsStats) {
		if f == nil {
			return
		}
		if out.Time.Before(&f.Time) {
			out.Time = f.Time
		}
		out.UsedBytes, out.InodesUsed = sum(out.UsedBytes, f.UsedBytes), sum(out.InodesUsed, f.InodesUsed)
	}
	for i := range disk.Containers {
		add(disk.Containers[i].Rootfs)
		add(disk.Containers[i].Logs)
	}
	for i := range disk.Volumes {
		if disk.Volumes[i].Ephemeral {
			add(&disk.Volumes[i].Stats.FsStats)
		}
	}
	add(disk.Other)
	if out.UsedBytes == nil && out.InodesUsed == nil {
		return nil
	}
	if nodeFs != nil {
		out.AvailableBytes, out.CapacityBytes = nodeFs.AvailableBytes, nodeFs.CapacityBytes
		out.InodesFree, out.Inodes = nodeFs.InodesFree, nodeFs.Inodes
	}
	return &out
}
