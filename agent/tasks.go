package agent

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
)

// tasks returns all tasks of the agent.
func (a *agent) tasks() []health.Task {
	all := []health.Task{{Name: "local-api", Run: a.local.Run}}
	all = append(all, a.sources...)
	all = append(all,
		health.Task{Name: "pleg", Run: a.pleg.Run}, health.Task{Name: "sync-loop", Run: a.loop.Run},
		health.Task{Name: "objects-folder", Run: a.objects.Run}, health.Task{Name: "probes", Run: a.probes.Run},
		health.Task{Name: "log-rotation", Run: a.rotator.Run}, health.Task{Name: "image-collection", Run: a.images.Run},
		health.Task{Name: "node-shutdown", Run: a.shutdown.Run},
		health.Task{Name: "sessions", Run: func(ctx context.Context) error { a.streams.Run(ctx); return nil }})
	all = append(all, a.evictionTasks()...)
	if a.preload != nil {
		all = append(all, health.Task{Name: "image-archives", Run: a.preload.Run})
	}
	if a.reaper != nil {
		all = append(all, health.Task{Name: "lost-containers", Run: a.reaper.Run})
	}
	if a.poller != nil {
		all = append(all, health.Task{Name: "cgroup-events", Run: a.poller.Run})
	}
	if a.cpus != nil {
		all = append(all, health.Task{Name: "cpus", Run: a.cpus.Run})
	}
	if a.network != nil {
		all = append(all, health.Task{Name: "network", Run: a.network.Run})
	}
	all = append(all, a.networkTasks...)
	if a.cluster != nil {
		all = append(all, a.cluster.tasks()...)
	}
	if a.nodeAPI != nil {
		all = append(all, a.nodeAPI.tasks()...)
	}
	all = append(all, health.Task{Name: "heap", Run: selfprotect.ReleaseHeap})
	if a.systemd != nil {
		all = append(all, health.Task{Name: "systemd", Run: a.systemd.Run})
	}
	return all
}
