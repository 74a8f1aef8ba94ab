package config

import "slices"

// ListenPorts returns the TCP ports that the agent listens on, sorted: those of the
// kubelet API server, and of /healthz and the status page.
func (cfg *Config) ListenPorts() []uint16 {
	var ports []uint16
	add := func(port int32) {
		if port > 0 && port <= 65535 && !slices.Contains(ports, uint16(port)) {
			ports = append(ports, uint16(port))
		}
	}
	add(cfg.Kubelet.Port)
	if cfg.Kubelet.HealthzPort != nil {
		add(*cfg.Kubelet.HealthzPort)
	}
	slices.Sort(ports)
	return ports
}
