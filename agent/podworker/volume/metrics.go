package volume

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
)

// operationBounds are the bucket bounds of storage_operation_duration_seconds
// (pkg/volume/util/metrics.go).
var operationBounds = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// The names of the kubelet's volume plugins for the supported PersistentVolumes, and
// the name for none.
const (
	pluginHostPath = "kubernetes.io/host-path"
	pluginLocal    = "kubernetes.io/local-volume"
	pluginNone     = "N/A"
)

// Plugin returns the name of the kubelet's plugin for a volume. It returns N/A for
// a type that is not supported, and for a claim, whose plugin depends on its
// PersistentVolume.
func Plugin(source *v1.VolumeSource) string {
	switch {
	case source.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case source.HostPath != nil:
		return pluginHostPath
	case source.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case source.Secret != nil:
		return "kubernetes.io/secret"
	case source.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case source.Projected != nil:
		return "kubernetes.io/projected"
	case source.Image != nil:
		return "kubernetes.io/image"
	}
	return pluginNone
}

// pluginDir returns the name of the plugin's directory below volumes, such as dirSecret.
func pluginDir(source *v1.VolumeSource) string { return strings.Replace(Plugin(source), "/", "~", 1) }

// observe records the duration and result of the setup or update of a volume.
func (v *Manager) observe(plugin string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	var room [128]byte
	labels := metrics.AppendLabel(room[:0], "migrated", "false")
	labels = metrics.AppendLabel(labels, "operation_name", "volume_mount")
	labels = metrics.AppendLabel(labels, "status", status)
	v.setupTimings.Observe(metrics.AppendLabel(labels, "volume_plugin", plugin), took, err)
}

// WriteMetrics writes the durations of volume setups under the kubelet's metric name. The
// removal of volumes is not measured, because all volumes of a pod are removed together.
func (v *Manager) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindHistogram, "storage_operation_duration_seconds", "Duration of volume operations in seconds.")
	out.TimingVec(v.setupTimings)
}
