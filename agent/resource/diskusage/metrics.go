package diskusage

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// claimFamilies are the kubelet's metrics (metrics/collectors/volume_stats.go).
var claimFamilies = [...]struct {
	name, help string
	of         func(*statsapi.FsStats) *uint64
}{
	{"kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.CapacityBytes }},
	{"kubelet_volume_stats_available_bytes", "Available bytes in the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.AvailableBytes }},
	{"kubelet_volume_stats_used_bytes", "Used bytes in the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.UsedBytes }},
	{"kubelet_volume_stats_inodes", "Maximum number of inodes in the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.Inodes }},
	{"kubelet_volume_stats_inodes_free", "Free inodes in the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.InodesFree }},
	{"kubelet_volume_stats_inodes_used", "Used inodes in the volume of a claim.", func(f *statsapi.FsStats) *uint64 { return f.InodesUsed }},
}

// WriteClaims writes the kubelet_volume_stats_… families, with one sample for each
// claim. Unknown values have no sample.
func WriteClaims(out *metrics.Stream, claims []Claim) {
	labels := make([][]byte, len(claims))
	for i := range claims {
		labels[i] = metrics.AppendLabel(metrics.AppendLabel(nil, "namespace", claims[i].Namespace), "persistentvolumeclaim", claims[i].Name)
	}
	for _, f := range claimFamilies {
		out.Family(metrics.KindGauge, f.name, f.help)
		for i := range claims {
			if value := f.of(&claims[i].Stats); value != nil {
				out.Sample(float64(*value), labels[i])
			}
		}
	}
}

// WriteClaimMetrics measures and writes the usage of all claims. If no pod has a claim, it
// measures nothing. If the claims cannot be measured, it writes nothing: the other metrics
// remain available. It fails only if ctx has ended.
func (m *Meter) WriteClaimMetrics(ctx context.Context, out *metrics.Stream, entries []pod.Entry) error {
	for _, e := range entries {
		if slices.ContainsFunc(e.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
			claims, err := m.Claims(ctx)
			if err != nil {
				return context.Cause(ctx)
			}
			WriteClaims(out, claims)
			return nil
		}
	}
	return nil
}
