package stats

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ephemeralStorage returns the sum of a pod's ephemeral storage: writable layers, logs
// and local volumes (calcEphemeralStorage in pkg/kubelet/stats/helper.go). It
// returns nil if nothing of it is known.
func ephemeralStorage(disk *PodDisk, nodeFs *statsapi.FsStats) *statsapi.FsStats {
	var out statsapi.FsStats
	var used, inodes uint64
	var bytesKnown, inodesKnown bool
	add := func(f *statsapi.FsStats) {
		if f == nil {
			return
		}
		if out.Time.Before(&f.Time) {
			out.Time = f.Time
		}
		if f.UsedBytes != nil {
			used, bytesKnown = used+*f.UsedBytes, true
		}
		if f.InodesUsed != nil {
			inodes, inodesKnown = inodes+*f.InodesUsed, true
		}
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
	if !bytesKnown && !inodesKnown {
		return nil
	}
	if bytesKnown {
		out.UsedBytes = &used
	}
	if inodesKnown {
		out.InodesUsed = &inodes
	}
	if nodeFs != nil {
		out.AvailableBytes, out.CapacityBytes = nodeFs.AvailableBytes, nodeFs.CapacityBytes
		out.InodesFree, out.Inodes = nodeFs.InodesFree, nodeFs.Inodes
	}
	return &out
}
