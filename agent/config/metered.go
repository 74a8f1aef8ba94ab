package config

import (
	"log/slog"
	"time"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// A metered node's defaults of KubeletConfiguration, in place of 40 s and
// 5 min.
const (
	// meteredLease is the node-monitor-grace-period of Kubernetes v1.36, after
	// which the node controller calls a node that renewed nothing unknown
	// (pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
	meteredLease = 50 * time.Second
	// meteredReport bounds how long something wrong in the Node stays that
	// only another report puts right: no change of the node waits for it.
	meteredReport = 15 * time.Minute
)

const (
	// meteredShare is the part of the lease after which a metered node renews
	// it: a renewal may get lost, and the next is still in time (constraint 1
	// of nodeMonitorGracePeriod in
	// pkg/controller/nodelifecycle/node_lifecycle_controller.go, with N = 2).
	meteredShare = 2
	// meteredStatuses is how long statuses of pods wait that tell nothing new
	// of phase or readiness, such as restarts of a pod that is not ready.
	meteredStatuses = time.Minute
	// meteredEvents is half of the hour for which a server keeps an event that
	// is not updated.
	meteredEvents = 30 * time.Minute
	// leastMeteredLease has a metered node renew as often as one that is not.
	leastMeteredLease = 20
)

// Pace is how often the API server hears of this node, and how long it may be
// silent. Zero leaves a choice to who makes it.
type Pace struct {
	// Renew is between two renewals of the lease.
	Renew time.Duration
	// Statuses is how long a pod's status that nobody waits for is held back,
	// so that further changes go with it.
	Statuses time.Duration
	// Events is how long an event that happens again is not told again.
	Events time.Duration
	// Ping is how long the server may be silent before it is pinged. It is
	// over Renew: who renews hears the server answer.
	Ping time.Duration
}

// Pace is that of a metered node, or zero.
func (cfg *Config) Pace() Pace {
	if !cfg.Tinylet.Metered {
		return Pace{}
	}
	renew := time.Duration(cfg.Kubelet.NodeLeaseDurationSeconds) * time.Second / meteredShare
	return Pace{Renew: renew, Statuses: meteredStatuses, Events: meteredEvents, Ping: renew + renew/5}
}

// setMeteredDefaults changes what no document sets, by which set is what they
// do.
func setMeteredDefaults(kc, set *kubelet.KubeletConfiguration) {
	if set.NodeLeaseDurationSeconds == 0 {
		kc.NodeLeaseDurationSeconds = int32(meteredLease / time.Second)
	}
	// The kubelet has the one follow the other.
	if set.NodeStatusReportFrequency.Duration == 0 && set.NodeStatusUpdateFrequency.Duration == 0 {
		kc.NodeStatusReportFrequency.Duration = meteredReport
	}
}

// setBy is what documents set, the later over the former, without defaults.
func setBy(base map[string]any, dropIns []map[string]any) (kubelet.KubeletConfiguration, error) {
	fields := merge(nil, base)
	for _, dropIn := range dropIns {
		fields = merge(fields, dropIn)
	}
	var set kubelet.KubeletConfiguration
	err := convert(fields, &set)
	return set, err
}

const rareLease = "the lease is renewed rarely: with the defaults of its cluster this node would often be NotReady"

// rareLeaseNotice is for a lease that is renewed too rarely for a controller
// manager with defaults.
func rareLeaseNotice(cfg *Config) []Warning {
	renew := cfg.Pace().Renew
	if renew <= meteredLease/meteredShare {
		return nil
	}
	return []Warning{{rareLease, []slog.Attr{
		slog.Duration("renewed each", renew),
		slog.String("remedy", "set nodeLeaseDurationSeconds to the --node-monitor-grace-period of the kube-controller-manager, 50 by default"),
	}}}
}
