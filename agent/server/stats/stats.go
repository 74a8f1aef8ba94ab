// Package stats reports the resource usage of the node, its pods and their
// containers: as the Summary of /stats/summary, and as the text of
// /metrics/resource, /metrics/cadvisor and /metrics/probes.
//
// Stats are read from the cgroup v2 files on request, never from the runtime
// and never periodically. The only state between two requests is the last CPU
// time of each cgroup, because CPU usage is computed from two readings.
//
// Formats and names are those of the kubelet 1.36 (server/stats,
// metrics/collectors/resource_metrics.go) and of cAdvisor 0.56
// (metrics/prometheus.go). Differences:
//
//   - /metrics/cadvisor has no timestamps: its values are read at the time of
//     the scrape, which is then correct also if the node's clock is not set.
//     /metrics/resource has timestamps, because metrics-server needs them.
//   - I/O is the sum over all disks and has one device label, Config.Device.
//   - container_oom_events_total is the kernel's count of killed processes in
//     the cgroup and below, not a count of lines in the kernel's log.
//   - Sandboxes have network counters, but no stats of their pause process.
//     The pod's stats include it.
package stats

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/cgroups"
)

// Config configures a Stats. The funcs are called for each request, also
// concurrently, and must not retain their arguments.
type Config struct {
	// Node is the name of the Node.
	Node string
	// Groups is the cgroup hierarchy that all paths refer to.
	Groups *cgroups.Tree
	// Machine returns the description of the machine.
	Machine func() (Machine, error)
	// Pods returns the pods that have a sandbox. The names of pods in a
	// namespace and of containers in a pod must be unique: only the last
	// attempt of a container is included.
	Pods func(context.Context) ([]Pod, error)
	// AfterRead is called after each attempt to read all cgroups, for other
	// checks that can run while a request is served. It must not block.
	AfterRead func()
	// SystemContainers returns cgroups other than the pods', such as the agent's. It is
	// called after Pods.
	SystemContainers func() []SystemContainer
	// Network appends the interfaces of a pod, or of the node if the pod is
	// nil. For a pod on the host network it appends none.
	Network func(ctx context.Context, pod *Pod, to []Interface) ([]Interface, error)
	// PodDisk and NodeDisk measure filesystems, for the full Summary only.
	PodDisk  func(context.Context, *Pod) (diskusage.PodUsage, error)
	NodeDisk func(context.Context) (diskusage.NodeUsage, error)
	// Device is the device label of I/O metrics. Dashboards expect one such
	// as /dev/mmcblk0 or /dev/sda.
	Device string
	Log    *slog.Logger
}

// Stats serves requests for stats. Its methods are safe for concurrent use;
// they block on the kernel, on Config's funcs and on the writer.
type Stats struct {
	cfg    Config
	device []byte // the label

	mu    sync.Mutex
	rates rates
}

// New returns a Stats. It reads nothing yet.
func New(cfg Config) *Stats {
	return &Stats{cfg: cfg, device: metrics.AppendLabel(nil, "device", cfg.Device)}
}
