package podworker

import "github.com/tinylet/tinylet/agent/metrics"

// operation returns the kubelet's name of a step (SyncPodType in
// pkg/kubelet/types, and pod_workers.go for the last). It returns "" for a step
// that the kubelet does not count: its pod workers do not remove the remains of a
// pod.
func (l *podSyncStatus) operation(do action) string {
	switch do {
	case actSync:
		switch {
		case !l.syncStarted:
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

// WriteMetrics writes the durations of pod steps under the kubelet's metric
// name. The kubelet measures from the moment that it passes a pod to its
// worker; this metric measures from the moment that the worker begins.
func (s *Workers) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindHistogram, "kubelet_pod_worker_duration_seconds", "Duration in seconds of one step of a pod worker, by operation type.")
	out.TimingVec(&s.durations)
}
