package agent

import (
	"time"

	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/server/local"
)

// registrationStage registers the Node and reports its status and Lease.
type registrationStage struct {
	inputs    *registration.Collector
	registrar *registration.Registrar
	state     *local.ClusterSource
}

// newRegistrationStage returns nil on a standalone node.
func newRegistrationStage(core *core, cl *cluster, rt *runtimeStage, n *networkStage) *registrationStage {
	if cl == nil {
		return nil
	}
	cfg := core.cfg
	s := new(registrationStage)
	s.inputs = registration.NewCollector(registration.CollectorConfig{
		Config: cfg, Runtime: core.runtime, Node: core.node, RuntimeHealthy: rt.pleg.Healthy, RecordResponse: rt.pleg.RecordResponse,
		Trigger: core.runtimeStatus, OnChange: core.nodeStatus.Set, OnNetworkReady: core.wakeAll,
		Problem: problems(cl.identity.Problem, n.problem), Pressures: core.pressure.Conditions, ShuttingDown: core.shutdownState.InProgress,
	})
	s.registrar = registration.New(registration.Config{
		API: cl.api, Object: cl.object, NodeName: cfg.NodeName, Register: cfg.Kubelet.RegisterNode == nil || *cfg.Kubelet.RegisterNode,
		Trigger: core.nodeStatus,
		BeforeUpdate: func() { // each nodeStatusUpdateFrequency
			core.pressure.Trigger()
			cl.checkAddresses()
		},
		Inputs:               s.inputs.Get,
		InputsKnown:          s.inputs.Asked(),
		StatusUpdateInterval: cfg.Kubelet.NodeStatusUpdateFrequency.Duration,
		StatusReportInterval: cfg.Kubelet.NodeStatusReportFrequency.Duration,
		LeaseDuration:        time.Duration(cfg.Kubelet.NodeLeaseDurationSeconds) * time.Second,
		RenewInterval:        cl.pace.LeaseRenewal,
		HasKubeletVolumes:    core.volumes.HasForeign,
		Recovered:            cl.identity.Recovered,
		Events:               core.events,
		Log:                  core.log,
	})
	s.state = &local.ClusterSource{
		Metered: cfg.Tinylet.Metered, Identity: cl.identity, Registrar: s.registrar, Meter: &cl.meter, Journal: cl.stored,
		// The clock comes first: it may be the cause of the others.
		Problem: problems(cl.clock.Problem, cl.identity.Problem, cl.stored.Remedy),
	}
	return s
}
