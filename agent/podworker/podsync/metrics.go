package podsync

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// startBounds are the buckets of kubelet_pod_start_duration_seconds
// (podStartupDurationBuckets in pkg/kubelet/metrics).
var startBounds = []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

// counted holds the counters and histograms of a Syncer.
type counted struct {
	begun           metrics.Timing  // from submission to the first sync
	started         *metrics.Timing // from submission until the pod runs
	pods, badPods   atomic.Uint64
	containers, bad metrics.CounterVec
	evictions       metrics.CounterVec
	cgroups         metrics.TimingVec
	// for resizes
	requested, infeasible, accepted metrics.CounterVec
	resized                         *metrics.TimingVec
}

// countBegin records the time from a pod's submission to its first sync.
func (s *Syncer) countBegin(f *syncState) {
	if !f.begun && !f.submitted.IsZero() {
		s.counted.begun.Observe(s.now().Sub(f.submitted), nil)
	}
	f.begun = true
}

// countStart records the time from a pod's submission until its status is Running. It
// does not count a pod that already ran when the agent found it, nor one that ended
// before it was observed running.
func (s *Syncer) countStart(f *syncState, phase v1.PodPhase) {
	if f.pending && phase == v1.PodRunning && !f.submitted.IsZero() {
		s.counted.started.Observe(s.now().Sub(f.submitted), nil)
	}
	f.pending = phase == v1.PodPending
}

// countPod counts an attempt to create a pod's sandbox. An attempt whose ctx has ended,
// because the pod is terminated, is no failure.
func (s *Syncer) countPod(ctx context.Context, err error) {
	s.counted.pods.Add(1)
	if err != nil && ctx.Err() == nil {
		s.counted.badPods.Add(1)
	}
}

// countContainer counts an attempt to start a container. The label of a failure is the
// reason for which the container waits.
func (st *starter) countContainer(ctx context.Context, what *plan.Start, err error) {
	kind := "container"
	if what.Kind != pod.Main {
		kind = string(what.Kind) + "_container"
	}
	var room [96]byte
	labels := metrics.AppendLabel(room[:0], "container_type", kind)
	st.counted.containers.Add(1, labels)
	if err == nil || ctx.Err() != nil {
		return
	}
	code := cmp.Or(st.state.waiting[what.Container.Name].Reason, "Unknown")
	if bad := new(image.Error); errors.As(err, &bad) {
		code = bad.Reason
	}
	st.counted.bad.Add(1, metrics.AppendLabel(labels, "code", code))
}

// WriteMetrics writes the metrics of starts, cgroups, evictions and resizes
// under the kubelet's names.
func (s *Syncer) WriteMetrics(out *metrics.Stream) {
	c := &s.counted
	out.Family(metrics.KindHistogram, "kubelet_pod_worker_start_duration_seconds", "Duration in seconds from a pod's submission to its first sync.")
	out.Timing(&c.begun)
	out.Family(metrics.KindHistogram, "kubelet_pod_start_duration_seconds", "Duration in seconds from a pod's submission until it runs.")
	out.Timing(c.started)
	out.Family(metrics.KindCounter, "kubelet_started_pods_total", "Attempts to create a pod sandbox.")
	out.Sample(float64(c.pods.Load()))
	out.Family(metrics.KindCounter, "kubelet_started_pods_errors_total", "Failed attempts to create a pod sandbox.")
	out.Sample(float64(c.badPods.Load()))
	out.Family(metrics.KindCounter, "kubelet_started_containers_total", "Attempts to start a container, by container type.")
	out.CounterVec(&c.containers)
	out.Family(metrics.KindCounter, "kubelet_started_containers_errors_total", "Failed attempts to start a container, by container type and reason.")
	out.CounterVec(&c.bad)
	out.Family(metrics.KindHistogram, "kubelet_cgroup_manager_duration_seconds", "Duration in seconds of cgroup operations, by operation type.")
	out.TimingVec(&c.cgroups)
	out.Family(metrics.KindCounter, "kubelet_evictions", "Evicted pods, by eviction signal.")
	out.CounterVec(&c.evictions)
	s.writeResizes(out)
}
