package config

import (
	"log/slog"
	"time"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Defaults of KubeletConfiguration on a metered node, in place of 40 s and
// 5 min.
const (
	// meteredLease is the node-monitor-grace-period of Kubernetes v1.36. After
	// that time without a renewal the node controller sets the node's Ready
	// condition to Unknown
	// (pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
	meteredLease = 50 * time.Second
	// meteredReport bounds how long a wrong field of the Node stays wrong if only
	// a periodic report corrects it. Changes of the node are reported at once.
	meteredReport = 15 * time.Minute
)

const (
	// leaseDivisor is the divisor of the lease duration that gives the renewal
	// interval of a metered node: after one lost renewal the next is still in
	// time (constraint 1 of nodeMonitorGracePeriod in
	// pkg/controller/nodelifecycle/node_lifecycle_controller.go, with N = 2).
	leaseDivisor = 2
	// meteredStatusDelay is how long a pod status is delayed that changes neither
	// phase nor readiness, such as a restart of a pod that is not ready.
	meteredStatusDelay = time.Minute
	// meteredEventInterval is half of the default --event-ttl of the API server (1 h), for
	// which it keeps an event that is not updated.
	meteredEventInterval = 30 * time.Minute
	// minMeteredLease is the minimum lease duration of a metered node in seconds. With
	// it the node renews every 10 s, as a node that is not metered does by default.
	minMeteredLease = 20
)

// UpdateIntervals has the intervals of updates that are sent to the API server. The code that
// uses a field applies its own default if the field is zero.
type UpdateIntervals struct {
	// LeaseRenewal is the interval between two renewals of the Lease.
	LeaseRenewal time.Duration
	// StatusDelay is how long a pod status of low priority is delayed, so that
	// further changes are sent with it.
	StatusDelay time.Duration
	// EventInterval is how long a repeated event is not sent again.
	EventInterval time.Duration
	// PingAfter is how long nothing may be received from the API server before it is
	// pinged. It is longer than LeaseRenewal, because the response to a renewal makes
	// a ping unnecessary.
	PingAfter time.Duration
}

// UpdateIntervals returns the update intervals of a metered node, or else the zero
// UpdateIntervals.
func (cfg *Config) UpdateIntervals() UpdateIntervals {
	if !cfg.Tinylet.Metered {
		return UpdateIntervals{}
	}
	renew := time.Duration(cfg.Kubelet.NodeLeaseDurationSeconds) * time.Second / leaseDivisor
	return UpdateIntervals{LeaseRenewal: renew, StatusDelay: meteredStatusDelay, EventInterval: meteredEventInterval, PingAfter: renew + renew/5}
}

// setMeteredDefaults sets the metered defaults of the fields of kc that no document
// sets. set holds the fields that documents set.
func setMeteredDefaults(kc, set *kubelet.KubeletConfiguration) {
	if set.NodeLeaseDurationSeconds == 0 {
		kc.NodeLeaseDurationSeconds = int32(meteredLease / time.Second)
	}
	// In the kubelet the report frequency follows the update frequency.
	if set.NodeStatusReportFrequency.Duration == 0 && set.NodeStatusUpdateFrequency.Duration == 0 {
		kc.NodeStatusReportFrequency.Duration = meteredReport
	}
}

// explicitSettings merges the fields that documents set, without defaults.
func explicitSettings(base map[string]any, dropIns []map[string]any) (kubelet.KubeletConfiguration, error) {
	fields := merge(nil, base)
	for _, dropIn := range dropIns {
		fields = merge(fields, dropIn)
	}
	var set kubelet.KubeletConfiguration
	err := convert(fields, &set)
	return set, err
}

const longRenewalInterval = "lease renewal interval is too long"

// renewalWarnings returns a warning if the lease is renewed too rarely for the
// default settings of the kube-controller-manager.
func renewalWarnings(cfg *Config) []Warning {
	renew := cfg.UpdateIntervals().LeaseRenewal
	if renew <= meteredLease/leaseDivisor {
		return nil
	}
	return []Warning{{longRenewalInterval, []slog.Attr{
		slog.Duration("interval", renew),
		slog.String("effect", "with the defaults of kube-controller-manager the node would often be NotReady"),
		slog.String("remedy", "set nodeLeaseDurationSeconds to the --node-monitor-grace-period of the kube-controller-manager, 50 by default"),
	}}}
}
