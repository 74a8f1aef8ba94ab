package agent

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
)

// stages returns the tasks in the order of their start, which is the reverse order of their
// stop. Writers of statuses stop after the pod workers, so that they can send the last ones.
func (a *agent) stages() []health.Stage {
	return []health.Stage{
		{Name: "runtime", Tasks: a.runtimeTasks()},
		{Name: "cluster", Tasks: a.clusterTasks()},
		{Name: "node", Tasks: a.nodeTasks()},
		{Name: "pods", Tasks: a.podTasks()},
		{Name: "servers", Tasks: a.serverTasks()},
	}
}

func (a *agent) runtimeTasks() []health.Task {
	all := []health.Task{{Name: "heap", Run: selfprotect.ReleaseHeap}}
	if a.systemd != nil {
		all = append(all, health.Task{Name: "systemd", Run: a.systemd.Run})
	}
	if a.poller != nil {
		all = append(all, health.Task{Name: "cgroup-events", Run: a.poller.Run})
	}
	all = append(all, a.networkTasks...)
	if a.preload != nil {
		all = append(all, health.Task{Name: "image-archives", Run: a.preload.Run})
	}
	return append(all,
		health.Task{Name: "pleg", Run: a.pleg.Run}, health.Task{Name: "log-rotation", Run: a.rotator.Run},
		health.Task{Name: "image-collection", Run: a.images.Run})
}

func (a *agent) clusterTasks() []health.Task {
	if a.cluster == nil {
		return nil
	}
	all := []health.Task{
		{Name: "clock", Run: a.cluster.clock.Run}, {Name: "identity", Run: a.cluster.identity.Run},
		{Name: "api-objects", Run: a.cluster.objects.Run}, {Name: "events", Run: a.cluster.events.Run},
		{Name: "node-inputs", Run: a.registration.inputs.Run}, {Name: "registrar", Run: a.registration.registrar.Run},
		{Name: "pod-statuses", Run: a.reporting.reporter.Run},
	}
	if a.cluster.completion != nil {
		all = append(all, health.Task{Name: "journal-objects", Run: a.cluster.completion})
	}
	return all
}

func (a *agent) nodeTasks() []health.Task {
	all := []health.Task{{Name: "evictions", Run: a.eviction.Run}, {Name: "node-shutdown", Run: a.shutdown.Run}}
	if a.eviction.LimitLocalStorage {
		all = append(all, health.Task{Name: "storage-limits", Run: a.eviction.RunLocalStorage})
	}
	if a.reaper != nil {
		all = append(all, health.Task{Name: "lost-containers", Run: a.reaper.Run})
	}
	return all
}

func (a *agent) podTasks() []health.Task {
	all := []health.Task{
		{Name: "objects-folder", Run: a.objects.Run}, {Name: "probes", Run: a.probes.Run}, {Name: "sync-loop", Run: a.runLoop},
	}
	if a.cpus != nil {
		all = append(all, health.Task{Name: "cpus", Run: a.cpus.Run})
	}
	if all = append(all, a.sourceTasks...); a.reporting != nil {
		all = append(all, health.Task{Name: "source-api", Run: a.reporting.source.Run})
	}
	return all
}

// runLoop runs the sync loop. When ctx ends it releases the pod workers that wait for systemd.
func (a *agent) runLoop(ctx context.Context) error {
	if a.cgroups != nil {
		defer context.AfterFunc(ctx, a.cgroups.Close)()
	}
	return a.loop.Run(ctx)
}

func (a *agent) serverTasks() []health.Task {
	all := []health.Task{
		{Name: "local-api", Run: a.local.Run},
		{Name: "sessions", Run: func(ctx context.Context) error { a.streams.Run(ctx); return nil }},
	}
	if a.nodeAPI != nil {
		all = append(all,
			health.Task{Name: "client-ca", Run: func(ctx context.Context) error { a.nodeAPI.authn.Run(ctx); return nil }},
			health.Task{Name: "node-api", Run: a.nodeAPI.server.Run})
	}
	return all
}
