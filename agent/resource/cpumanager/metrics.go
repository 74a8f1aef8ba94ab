package cpumanager

import "github.com/tinylet/tinylet/agent/metrics"

// WriteMetrics writes how CPUs were given, under the kubelet's names
// (pkg/kubelet/metrics); with the policy none nothing.
func (m *Manager) WriteMetrics(out *metrics.Stream) {
	if m == nil {
		return
	}
	out.Family(metrics.KindCounter, "kubelet_cpu_manager_pinning_requests_total", "Pods that asked for CPUs of their own.")
	out.Sample(float64(m.asked.Load()))
	out.Family(metrics.KindCounter, "kubelet_cpu_manager_pinning_errors_total", "Pods that could not have the CPUs that they asked for.")
	out.Sample(float64(m.refused.Load()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return
	}
	free := m.policy.Free().Len()
	out.Family(metrics.KindGauge, "kubelet_cpu_manager_shared_pool_size_millicores", "CPUs that may still be given, in thousandths.")
	out.Sample(float64(1000 * free))
	out.Family(metrics.KindGauge, "kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have alone.")
	out.Sample(float64(m.settings.topology.CPUs.Len() - m.policy.SharedPool().Len()))
}
