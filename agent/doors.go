package agent

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/podworker/syncloop"
	"github.com/tinylet/tinylet/agent/server/local"
)

// assembleDoors builds what others ask the agent through: the socket for root
// at the board, /healthz with the status page, and the node's API. It comes
// last, since they tell of all the rest.
func (p *parts) assembleDoors(cfg *config.Config, rt container.Runtime, calls func() uint64, view *view, log *slog.Logger) error {
	if err := p.assembleStreams(cfg, rt, view, log); err != nil {
		return err
	}
	if err := p.assembleDisks(cfg, rt, view, log); err != nil {
		return err
	}
	figures, err := newFigures(cfg, view, p, log)
	if err != nil {
		return err
	}
	if figures != nil {
		p.usage = figures.usage
	}
	if err := p.assembleNodeAPI(cfg, rt, view, figures, log); err != nil {
		return err
	}
	page, err := p.assemblePage(cfg, view, p.checks(), log)
	if err != nil {
		return err
	}
	told := (func() *local.Cluster)(nil)
	if p.cluster != nil {
		told = p.tellCluster
	}
	p.local, err = local.New(local.Config{
		Cluster:        told,
		Conditions:     p.shortages,
		Todo:           func() []string { return p.keptVolumes(log) },
		SocketPath:     cfg.Tinylet.SocketPath,
		HealthzAddress: healthzAddress(cfg),
		Pods:           view.pods,
		Events:         p.events.Recent,
		Drain:          local.Drain{Begin: p.goDown, Cancel: p.shutdown.Cancel, Remaining: func() int { return len(p.notOver()) }},
		Watch:          p.events.Watch,
		Usage:          p.usage,
		Page:           page,
		Checks:         p.checks(),
		RuntimeCalls:   calls,
		Metrics:        p.writeMetrics,
		Streaming:      p.streams,
		Log:            log,
	})
	if err != nil {
		return err
	}
	if problem := cfg.ExposedCredentials(); problem != "" {
		log.Warn("credentials are readable by other users", "remedy", problem)
	}
	p.local.SetProblem(problems(plainURL(cfg), cfg.ExposedCredentials))
	return nil
}

// tellCluster is how the agent does with its API server, and what it tells
// there of the node.
func (p *parts) tellCluster() *local.Cluster {
	out := p.cluster.told()
	out.Conditions = toldConditions(p.cluster.conditions(context.Background()))
	return out
}

// shortages are the conditions of a board alone.
func (p *parts) shortages() []local.Condition {
	return toldConditions(nodestatus.PressureConditions(p.evictions.under()))
}

func toldConditions(all []v1.NodeCondition) (out []local.Condition) {
	for _, c := range all {
		out = append(out, local.Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time,
		})
	}
	return out
}

// checks are what the agent's health goes by.
func (p *parts) checks() []local.Check {
	return []local.Check{
		{Name: "syncloop", Healthy: func(time.Time) error { return alive(p.loop) }},
		{Name: "runtime", Healthy: p.pleg.Healthy},
		{Name: "tasks", Healthy: p.supervisor.Healthy},
	}
}

// turnLimit is how long the sync loop may take for one turn: it only
// dispatches, so even a slow board needs milliseconds.
const turnLimit = 2 * time.Second

func alive(loop *syncloop.Loop) error {
	ctx, cancel := context.WithTimeout(context.Background(), turnLimit)
	defer cancel()
	return loop.Alive(ctx)
}
