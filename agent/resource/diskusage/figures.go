package diskusage

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// stats returns the usage of a place in the form of the API, or nil if nothing is known.
func (c measured) stats() *statsapi.FsStats {
	switch {
	case c.tree != nil:
		usage, at := c.tree.best()
		if at.IsZero() {
			return nil
		}
		return fsStats(c.system, &usage.Bytes, &usage.Inodes, at)
	case c.system == nil || c.system.at.IsZero():
		return nil
	}
	return c.system.stats()
}

// stats returns the stats of a whole file system.
func (s *system) stats() *statsapi.FsStats {
	used := &[2]uint64{s.used, s.inodesUsed}
	out := fsStats(s, &used[0], &used[1], s.at)
	if !s.hasInodes {
		out.InodesUsed = nil
	}
	return out
}

// fsStats combines the usage with the size of the file system, as far as that is
// known.
func fsStats(s *system, used, inodes *uint64, at time.Time) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: used, InodesUsed: inodes}
	if s == nil || s.at.IsZero() {
		return out
	}
	// The result outlives the lock, so it must not point into s.
	all := &[4]uint64{s.available, s.capacity, s.inodesFree, s.inodes}
	out.AvailableBytes, out.CapacityBytes = &all[0], &all[1]
	if s.hasInodes {
		out.InodesFree, out.Inodes = &all[2], &all[3]
	}
	return out
}

// usage returns the known usage of a pod.
func (p *podState) usage(node *system, containers []string) PodUsage {
	out := PodUsage{
		Containers: make([]ContainerUsage, len(containers)),
		Volumes:    make([]VolumeUsage, 0, len(p.volumes)),
	}
	var other sum
	for i := range p.containers {
		c := &p.containers[i]
		asked := false
		for j, name := range containers {
			if name == c.name {
				out.Containers[j], asked = ContainerUsage{Rootfs: c.rootfs.stats(), Logs: c.logs.stats()}, true
			}
		}
		if !asked {
			other.add(c.logs)
		}
	}
	for _, c := range p.other {
		other.add(c)
	}
	if !other.at.IsZero() {
		out.Other = fsStats(node, &other.Bytes, &other.Inodes, other.at)
	}
	for i := range p.volumes {
		v := &p.volumes[i]
		stats := v.stats()
		if stats == nil {
			continue
		}
		volume := VolumeUsage{Stats: statsapi.VolumeStats{FsStats: *stats, Name: v.name}, Ephemeral: v.ephemeral}
		if v.claim != "" {
			volume.Stats.PVCRef = &statsapi.PVCReference{Name: v.claim, Namespace: p.namespace}
		}
		out.Volumes = append(out.Volumes, volume)
	}
	return out
}

// sum is the sum of several trees.
type sum struct {
	Usage
	at time.Time
}

func (s *sum) add(c measured) {
	if c.tree == nil {
		return
	}
	usage, at := c.tree.best()
	if at.IsZero() {
		return
	}
	s.Bytes, s.Inodes = s.Bytes+usage.Bytes, s.Inodes+usage.Inodes
	if at.After(s.at) {
		s.at = at
	}
}

// claims returns the claims of all pods. A claim of several pods is returned once.
func (k *known) claims() []Claim {
	var out []Claim
	for i := range k.pods {
		p := &k.pods[i]
		for j := range p.volumes {
			v := &p.volumes[j]
			known := func(c Claim) bool { return c.Namespace == p.namespace && c.Name == v.claim }
			if v.claim == "" || slices.ContainsFunc(out, known) {
				continue
			}
			if stats := v.stats(); stats != nil {
				out = append(out, Claim{Namespace: p.namespace, Name: v.claim, Stats: *stats})
			}
		}
	}
	return out
}

// nodeUsage returns the usage of the node's own file systems. It assumes that
// writable layers are on imagefs: the CRI allows other arrangements, but no runtime
// has them.
func (m *Meter) nodeUsage(ctx context.Context) NodeUsage {
	var out NodeUsage
	out.Fs = measured{system: m.known.node}.stats()
	m.requestImageFs(ctx)
	if i := &m.known.image; i.used != nil {
		out.ImageFs = fsStats(i.system, i.used, i.inodes, i.at)
		out.ContainerFs = new(*out.ImageFs)
	}
	return out
}
