package cpumanager

import "github.com/tinylet/tinylet/agent/metrics"

// WriteMetrics writes metrics of CPU assignment under the kubelet's names
// (pkg/kubelet/metrics). It writes nothing with the policy none.
func (m *Manager) WriteMetrics(out *metrics.Stream) {
	if m == nil {
		return
	}
	out.Family(metrics.KindCounter, "kubelet_cpu_manager_pinning_requests_total", "Pods that requested exclusive CPUs.")
	out.Sample(float64(m.requested.Load()))
	out.Family(metrics.KindCounter, "kubelet_cpu_manager_pinning_errors_total", "Pods whose request for exclusive CPUs was rejected.")
	out.Sample(float64(m.rejected.Load()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return
	}
	free := m.policy.Free().Size()
	out.Family(metrics.KindGauge, "kubelet_cpu_manager_shared_pool_size_millicores", "CPUs that can still be assigned exclusively, in millicores.")
	out.Sample(float64(1000 * free))
	out.Family(metrics.KindGauge, "kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that are assigned exclusively.")
	out.Sample(float64(m.settings.topology.CPUs.Size() - m.policy.SharedPool().Size()))
}
