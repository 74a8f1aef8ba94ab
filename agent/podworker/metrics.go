package podworker

import (
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
)

// operation is what the kubelet calls a step (SyncPodType in
// pkg/kubelet/types, and pod_workers.go for the last), "" for one that it does
// not count: there, what is left of a pod is cleared away elsewhere.
func (l *life) operation(do action) string {
	switch do {
	case actSync:
		switch {
		case !l.begun:
			return "create"
		case l.synced != l.pod:
			return "update"
		}
		return "sync"
	case actTerminate:
		return "kill"
	case actFinish:
		return "terminated"
	case actForget, actIdle:
	}
	return ""
}

// observe counts a step that has ended, in whatever way.
func (s *Set) observe(operation string, took time.Duration) {
	if operation == "" {
		return
	}
	var room [32]byte
	s.took.Observe(metrics.AppendLabel(room[:0], "operation_type", operation), took, nil)
}

// WriteMetrics writes how long the steps on pods took, under the kubelet's
// name. A kubelet counts from the moment that it hands a pod to its worker,
// this from the moment that the worker begins.
func (s *Set) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindHistogram, "kubelet_pod_worker_duration_seconds", "How long steps on one pod took, by what they were for.")
	out.Timings(&s.took)
}
