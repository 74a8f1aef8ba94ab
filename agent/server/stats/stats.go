// Package stats tells what the node, its pods and their containers use: as
// the Summary of /stats/summary, and as the text of /metrics/resource,
// /metrics/cadvisor and /metrics/probes.
//
// Figures come from the files of cgroup v2 when somebody asks, never through
// the runtime and never on a schedule. All that is kept between two requests
// is each group's last CPU time, for the usage that needs two readings.
//
// The forms and names are those of the kubelet 1.36 (server/stats,
// metrics/collectors/resource_metrics.go) and of cAdvisor 0.56
// (metrics/prometheus.go). Where this differs:
//
//   - Nothing in /metrics/cadvisor carries a time: what is read for the scrape
//     is of the scrape's time, also on a board whose clock is not set.
//     /metrics/resource has times, since metrics-server computes with them.
//   - I/O is the sum over all disks and has one device label, Config.Device.
//   - container_oom_events_total is the kernel's count of killed processes in
//     the group and below, in place of lines found in the kernel's log.
//   - Sandboxes have network counters, but no figures of their pause process;
//     the pod's include it.
package stats

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// Config is what a Stats works with. The funcs are called for each request,
// by several at once, and must not keep what they are given; those that may
// be nil leave out what they would tell.
type Config struct {
	// Node is the name of the Node.
	Node string
	// Groups is the hierarchy that all cgroup paths are in.
	Groups *cgroups.Tree
	// Machine answers what is known of the machine itself.
	Machine func() (Machine, error)
	// Pods answers the pods that have a sandbox. The names of pods in a
	// namespace and of containers in a pod must be unique: of a container's
	// attempts only the last.
	Pods func(context.Context) ([]Pod, error)
	// Looked is called after each time that all groups were read, or could not
	// be: for checks that are due whenever the agent is awake. It must not
	// block. nil is none.
	Looked func()
	// System answers groups beside the pods', such as the agent's own; one
	// without a path is left out. It is called behind Pods. May be nil.
	System func() []Group
	// Network appends the interfaces of a pod, or of the node if the pod is
	// nil. For a pod in the node's network it appends none. May be nil.
	Network func(ctx context.Context, pod *Pod, to []Interface) ([]Interface, error)
	// PodDisk and NodeDisk measure filesystems, for the full Summary only.
	// May be nil.
	PodDisk  func(context.Context, *Pod) (PodDisk, error)
	NodeDisk func(context.Context) (NodeDisk, error)
	// Device is the device label of I/O. Dashboards want one such as
	// /dev/mmcblk0 or /dev/sda.
	Device string
	Log    *slog.Logger
}

// Stats answers requests for figures. Its methods may be called at once; they
// block on the kernel, on Config's funcs and on the writer.
type Stats struct {
	cfg    Config
	device []byte // the label

	mu    sync.Mutex
	rates rates
}

// New makes a Stats. It reads nothing yet.
func New(cfg Config) (*Stats, error) {
	if cfg.Node == "" || cfg.Groups == nil || cfg.Machine == nil || cfg.Pods == nil || cfg.Log == nil {
		return nil, errors.New("make stats: Node, Groups, Machine, Pods and Log are needed")
	}
	return &Stats{cfg: cfg, device: metrics.AppendLabel(nil, "device", cfg.Device), rates: rates{}}, nil
}
