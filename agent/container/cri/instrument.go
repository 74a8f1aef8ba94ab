package cri

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/metrics"
)

// trace logs the duration of a call at debug level. The records of a pod show the steps of
// its start.
func (d *Driver) trace(ctx context.Context, method string, req, reply any, took time.Duration) {
	if !d.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 5), slog.String("call", path.Base(method)), slog.Duration("took", took))
	for _, message := range []any{req, reply} {
		if r, ok := message.(*runtimeapi.RunPodSandboxRequest); ok {
			attrs = append(attrs, slog.String("podUID", r.GetConfig().GetMetadata().GetUid()))
		}
		if r, ok := message.(interface{ GetPodSandboxId() string }); ok {
			attrs = append(attrs, slog.String("sandboxID", r.GetPodSandboxId()))
		}
		if r, ok := message.(interface{ GetContainerId() string }); ok {
			attrs = append(attrs, slog.String("containerID", r.GetContainerId()))
		}
	}
	d.log.LogAttrs(ctx, slog.LevelDebug, "called the container runtime", attrs...)
}

// callBounds are the buckets of kubelet_runtime_operations_duration_seconds: 14
// from 5 ms on, each 2.5 times the previous one.
var callBounds = []float64{
	.005, .0125, .03125, .078125, .1953125, .48828125, 1.220703125, 3.0517578125, 7.62939453125,
	19.073486328125, 47.6837158203125, 119.20928955078125, 298.0232238769531, 745.0580596923828,
}

// operations are the kubelet's names of the calls
// (pkg/kubelet/kuberuntime/instrumented_services.go). Those of sandbox calls
// are not the snake case of the calls' names.
var operations = map[string]string{
	"Version":                  "version",
	"Status":                   "status",
	"Info":                     "status",
	"RuntimeConfig":            "runtime_config",
	"RunPodSandbox":            "run_podsandbox",
	"StopPodSandbox":           "stop_podsandbox",
	"RemovePodSandbox":         "remove_podsandbox",
	"PodSandboxStatus":         "podsandbox_status",
	"ListPodSandbox":           "list_podsandbox",
	"CreateContainer":          "create_container",
	"StartContainer":           "start_container",
	"StopContainer":            "stop_container",
	"RemoveContainer":          "remove_container",
	"ListContainers":           "list_containers",
	"ContainerStatus":          "container_status",
	"ReopenContainerLog":       "reopen_container_log",
	"ExecSync":                 "exec_sync",
	"Exec":                     "exec",
	"Attach":                   "attach",
	"PortForward":              "port_forward",
	"ListImages":               "list_images",
	"ImageStatus":              "image_status",
	"PullImage":                "pull_image",
	"RemoveImage":              "remove_image",
	"ImageFsInfo":              "image_fs_info",
	"UpdateContainerResources": "update_container",
}

// errExit is the error of a command with an exit code other than 0.
var errExit = errors.New("non-zero exit code")

// recordMetrics records a call that has ended. As in the kubelet, a command with an
// exit code other than 0 is a failed operation, also that of a probe.
func (d *Driver) recordMetrics(method string, reply any, took time.Duration, err error) {
	operation := operations[path.Base(method)]
	if operation == "" {
		return // upstream has no name for the call
	}
	if r, ok := reply.(*runtimeapi.ExecSyncResponse); ok && err == nil && r.GetExitCode() != 0 {
		err = errExit
	}
	var room [64]byte
	d.durations.Observe(metrics.AppendLabel(room[:0], "operation_type", operation), took, err)
}

// WriteMetrics writes the metrics of calls under the kubelet's names. Streams are not
// counted.
func (d *Driver) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindCounter, "kubelet_runtime_operations_total", "Cumulative number of runtime operations by operation type.")
	out.Totals(d.durations)
	out.Family(metrics.KindCounter, "kubelet_runtime_operations_errors_total", "Cumulative number of runtime operation errors by operation type.")
	out.Errors(d.durations)
	out.Family(metrics.KindHistogram, "kubelet_runtime_operations_duration_seconds", "Duration in seconds of runtime operations. Broken down by operation type.")
	out.TimingVec(d.durations)
}
