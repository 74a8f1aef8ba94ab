package podsync

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// The triggers of a decision on a resize, as labels of
// kubelet_pod_deferred_accepted_resizes_total
// (pkg/kubelet/allocation/allocation_manager.go). The kubelet's periodic_retry does not
// exist here.
const (
	podResized    = "pod_resized"
	podUpdated    = "pod_updated"
	podsAdded     = "pods_added"
	podsRemoved   = "pods_removed"
	podTerminated = "pod_terminated"
)

// resizeBounds are the buckets of kubelet_pod_resize_duration_milliseconds, in
// milliseconds (podResizeDurationBuckets in pkg/kubelet/metrics).
var resizeBounds = []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}

// countRequested counts the requests and limits that differ between two
// versions of a pod; before is nil for a new pod
// (recordContainerResizeOperations in pkg/kubelet/kubelet.go).
func (s *Syncer) countRequested(before, after *v1.Pod) {
	if before == nil || before == after {
		return
	}
	for c, kind := range pod.Containers(&after.Spec) {
		was, _ := pod.FindContainer(&before.Spec, c.Name)
		if was == nil || kind == pod.Ephemeral {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			s.countChange(name, "requests", was.Resources.Requests, c.Resources.Requests)
			s.countChange(name, "limits", was.Resources.Limits, c.Resources.Limits)
		}
	}
}

func (s *Syncer) countChange(name v1.ResourceName, requirement string, was, is v1.ResourceList) {
	old, desired := was[name], is[name]
	operation := "increase"
	switch d := desired.Cmp(old); {
	case d == 0:
		return
	case desired.IsZero():
		operation = "remove"
	case old.IsZero():
		operation = "add"
	case d < 0:
		operation = "decrease"
	}
	var room [96]byte
	labels := metrics.AppendLabel(room[:0], "operation", operation)
	labels = metrics.AppendLabel(labels, "requirement", requirement)
	s.counted.requested.Add(1, metrics.AppendLabel(labels, "resource", string(name)))
}

// countAccepted counts a deferred resize that is allocated now.
func (s *Syncer) countAccepted(e *resizable, d *resize.Decision) {
	pending := e.conditions.Pending
	if d.Outcome == resize.Allocate && pending != nil && pending.Reason == v1.PodReasonDeferred {
		s.counted.accepted.Add(1, metrics.AppendLabel(nil, "retry_trigger", e.trigger))
	}
}

// countResized counts an attempt to execute a resize. It omits a failed attempt whose ctx
// has ended, because the pod is terminated.
func (s *Syncer) countResized(ctx context.Context, took time.Duration, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	// Timings take seconds, and this metric has milliseconds.
	s.counted.resized.Observe(metrics.AppendLabel(nil, "success", strconv.FormatBool(err == nil)), 1000*took, err)
}

// pendingCounts returns the number of pending resizes by their reason in metrics,
// and the number of resizes in progress.
func (r *resizes) pendingCounts() (pending map[string]int, inProgress int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending = make(map[string]int)
	for _, e := range r.pods {
		if e.over {
			continue
		}
		if c := e.conditions.Pending; c != nil {
			pending[strings.ToLower(c.Reason)]++
		}
		if e.conditions.InProgress != nil {
			inProgress++
		}
	}
	return pending, inProgress
}

// writeResizes writes the metrics of resizes under the kubelet's names.
func (s *Syncer) writeResizes(out *metrics.Stream) {
	c := &s.counted
	pending, inProgress := s.resizes.pendingCounts()
	out.Family(metrics.KindCounter, "kubelet_container_requested_resizes_total", "Requested changes of container requests and limits, by resource, requirement and operation.")
	out.CounterVec(&c.requested)
	out.Family(metrics.KindGauge, "kubelet_pod_pending_resizes", "Pods with a pending resize, by reason.")
	for _, reason := range slices.Sorted(maps.Keys(pending)) {
		out.Sample(float64(pending[reason]), metrics.AppendLabel(nil, "reason", reason))
	}
	out.Family(metrics.KindGauge, "kubelet_pod_in_progress_resizes", "Pods with a resize in progress.")
	out.Sample(float64(inProgress))
	out.Family(metrics.KindCounter, "kubelet_pod_infeasible_resizes_total", "Infeasible resizes, by reason.")
	out.CounterVec(&c.infeasible)
	out.Family(metrics.KindCounter, "kubelet_pod_deferred_accepted_resizes_total", "Deferred resizes that were accepted later, by retry trigger.")
	out.CounterVec(&c.accepted)
	out.Family(metrics.KindHistogram, "kubelet_pod_resize_duration_milliseconds", "Duration in milliseconds of the actuation of a pod resize.")
	out.TimingVec(c.resized)
}
