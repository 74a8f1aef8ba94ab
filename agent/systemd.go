package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/health/sdnotify"
)

// assembleSystemd builds what reports to systemd, where it has started the
// agent and wants that.
func (p *parts) assembleSystemd(log *slog.Logger) {
	if !sdnotify.Enabled() {
		return
	}
	p.systemd = sdnotify.New(sdnotify.Config{
		Ready: p.ready, Status: p.line, Notify: p.statuses.Notify, Stopping: p.stopping, Checks: p.vitals(), Log: log,
	})
}

// ready returns nil once the sync loop runs and has the pods of the journal.
// The container runtime and the API server may be away.
func (p *parts) ready(ctx context.Context) error {
	if p.cluster != nil {
		select {
		case <-p.handedOver:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return p.loop.Alive(ctx)
}

// vitals are the checks for what a restart of the agent cures.
func (p *parts) vitals() []health.Check {
	checks := []health.Check{
		{Name: "sync loop", Run: p.loop.Alive}, {Name: "pod workers", Run: p.workers.Unlocked},
		{Name: "pod syncs", Run: p.syncer.Unlocked}, {Name: "pod statuses", Run: p.statuses.Unlocked},
	}
	if p.cluster != nil && p.cluster.journal != nil {
		checks = append(checks, health.Check{Name: "journal", Run: p.cluster.journal.Unlocked})
	}
	return checks
}

// line is the agent's state in one line.
func (p *parts) line() string {
	phases := map[v1.PodPhase]int{}
	for _, e := range p.statuses.List() {
		phases[e.Status.Phase]++
	}
	var parts []string
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown} {
		if n := phases[phase]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
		}
	}
	if len(parts) == 0 {
		return "No pods"
	}
	return "Pods: " + strings.Join(parts, ", ")
}
