package agent

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/health/sdnotify"
)

// assembleSystemd builds the notifications for systemd, if systemd has started the agent and
// expects them.
func (a *agent) assembleSystemd() error {
	if !sdnotify.Enabled() {
		return nil
	}
	a.systemd = sdnotify.New(sdnotify.Config{
		Ready: a.ready, Status: a.statuses.Summary, Notify: a.statuses.Notify, Stopping: a.stopping, Checks: a.watchdogChecks(), Log: a.log,
	})
	return nil
}

// ready returns nil once the sync loop runs and has the pods of the journal. The container
// runtime and the API server may be unavailable.
func (a *agent) ready(ctx context.Context) error {
	if a.cluster != nil {
		select {
		case <-a.cluster.pods.Restored:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return a.loop.Alive(ctx)
}

// watchdogChecks returns the checks for faults that a restart of the agent cures.
func (a *agent) watchdogChecks() []health.Check {
	checks := []health.Check{
		{Name: "sync loop", Run: a.loop.Alive}, {Name: "pod workers", Run: a.workers.Unlocked},
		{Name: "pod syncs", Run: a.syncer.Unlocked}, {Name: "pod statuses", Run: a.statuses.Unlocked},
	}
	if a.cluster != nil && a.cluster.journal != nil {
		checks = append(checks, health.Check{Name: "journal", Run: a.cluster.journal.Unlocked})
	}
	return checks
}
