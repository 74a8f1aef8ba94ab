package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/server/stats"
)

// assembleDisks builds what measures disks.
func (p *parts) assembleDisks(cfg *config.Config, rt container.Runtime, view *view, log *slog.Logger) (err error) {
	p.disks, err = diskusage.New(diskusage.Config{
		Pods: func(ctx context.Context) ([]diskusage.Pod, error) { return p.placesOfPods(ctx, view), nil },
		Node: cfg.Paths.Root, ImageFs: rt.ImageFsInfo, Log: log,
	})
	return err
}

// claimLimit is how long all claims together may be asked for: who asks waits,
// and the API server may be away. Most answers are known here already.
const claimLimit = time.Second

// placesOfPods are the places on disks of all pods.
func (p *parts) placesOfPods(ctx context.Context, view *view) []diskusage.Pod {
	node, told := view.node.peek()
	entries := p.statuses.List()
	out := make([]diskusage.Pod, 0, len(entries))
	limited, cancel := context.WithTimeout(ctx, claimLimit)
	defer cancel()
	for i := range entries {
		e := &entries[i]
		d := diskusage.Pod{UID: string(e.Pod.UID), Namespace: e.Pod.Namespace}
		d.Volumes, d.Other = p.syncer.Volumes.UsagePaths(e.Pod, func(claim string) string {
			c, err := p.reader().PersistentVolumeClaim(limited, e.Pod.Namespace, claim)
			if err != nil {
				return "" // its figures are missing until it is known
			}
			return c.Spec.VolumeName
		})
		for c := range pod.Containers(&e.Pod.Spec) {
			of := diskusage.Container{Name: c.Name}
			if st := pod.FindContainerStatus(e.Status, c.Name); st != nil && st.State.Running != nil {
				of.ID = idOf(st)
			}
			if told {
				of.Logs = diskusage.Place{Root: node.PodLogsDir, Path: filepath.Join(filepath.Base(criconfig.LogDirectory(e.Pod, node)), c.Name)}
			}
			d.Containers = append(d.Containers, of)
		}
		out = append(out, d)
	}
	return out
}

// podDisk is what a pod has on disks, for the Summary.
func (p *parts) podDisk(ctx context.Context, of *stats.Pod) (stats.PodDisk, error) {
	names := make([]string, len(of.Containers))
	for i := range names {
		names[i] = of.Containers[i].Name
	}
	return p.disks.Pod(ctx, of.UID, names)
}

// writeClaims writes how full the claims' volumes are. Without a claim nothing
// is measured for it. What cannot be measured is left out: all other metrics
// are wanted the more. It fails only if ctx has ended.
func (p *parts) writeClaims(ctx context.Context, out *metrics.Stream) error {
	for _, e := range p.statuses.List() {
		if slices.ContainsFunc(e.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
			claims, err := p.disks.Claims(ctx)
			if err != nil {
				return context.Cause(ctx)
			}
			diskusage.WriteClaims(out, claims)
			return nil
		}
	}
	return nil
}
