package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/source"
)

// reportingStage reports the pods to the API server, and receives pods from it.
type reportingStage struct {
	core     *core
	cluster  *cluster
	reporter *statusmanager.Manager
	source   *podsync.APIPods
}

// newReportingStage returns nil on a standalone node.
func newReportingStage(core *core, cl *cluster, p *podStage) (*reportingStage, error) {
	if cl == nil {
		return nil, nil
	}
	s := &reportingStage{core: core, cluster: cl}
	s.reporter = statusmanager.New(statusmanager.Config{
		API: cl.api, NodeName: core.cfg.NodeName, NodeUID: cl.object.UID, Trigger: core.podStatuses,
		List: func() []pod.Entry { return podsync.Reportable(core.statuses.List(), p.mayReport) }, Changed: core.statuses.Changed(),
		Done: func(uid types.UID) bool {
			state, ok := p.workers.State(uid)
			return ok && state == podworker.Terminated
		},
		StaticGone: func(namespace, name string) bool {
			return core.mux.Ready() && !core.statuses.HasStatic(namespace, name)
		},
		Coalesce:  cl.pace.StatusDelay,
		Recovered: cl.identity.Recovered,
		Log:       core.log,
	})
	api, err := source.NewAPI(source.APIConfig{
		API: cl.api, NodeName: core.cfg.NodeName,
		All: func(pods []*v1.Pod) {
			cl.objects.SetReferencingPods(pods)
			s.reporter.SetPods(pods)
			if cl.journal != nil {
				cl.journal.FinishAll(pods, shutdown.Terminated)
			}
		},
		Recovered: cl.identity.Recovered, Events: core.events, Log: core.log,
	})
	if err != nil {
		return nil, err
	}
	s.source = &podsync.APIPods{
		API: api, Store: cl.journal, Log: core.log, Restored: make(chan struct{}), Set: core.mux.Set,
		Known: func(uid types.UID) bool { _, known := p.workers.State(uid); return known },
		Listed: func() {
			cl.assigned.Store(true)
			core.wakeAll() // objects may have changed while they could not be watched
		},
	}
	return s, nil
}

// isRecorded reports whether the journal or the API server has the final status of a pod.
func (s *reportingStage) isRecorded(uid types.UID) bool {
	return s.cluster.journal != nil && s.cluster.journal.IsTerminal(uid) || s.reporter.IsTerminal(uid)
}

// awaitTerminal blocks until the API server has the final statuses of the pods that a node
// shutdown has terminated, or ctx ends.
func (s *reportingStage) awaitTerminal(ctx context.Context) {
	s.reporter.AwaitTerminal(ctx, func() (waiting []types.UID) {
		for _, e := range s.core.statuses.List() {
			if shutdown.Terminated(e.Status) && !pod.IsStatic(e.Pod) {
				waiting = append(waiting, e.Pod.UID)
			}
		}
		return waiting
	})
}
