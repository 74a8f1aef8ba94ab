package agent

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/action"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/agent/image"
	"github.com/tinylet/tinylet/agent/lifecycle"
	"github.com/tinylet/tinylet/agent/podsync"
	"github.com/tinylet/tinylet/agent/remote"
	"github.com/tinylet/tinylet/agent/volume"
)

// assembleSyncer builds what does the work on a pod.
func (p *parts) assembleSyncer(cfg *config.Config, runtime container.Runtime, below *below, node *nodeFacts, log *slog.Logger) *podsync.Syncer {
	volumes := volume.New(cfg.Paths.Root)
	volumes.MemoryLimit = func(p *v1.Pod) int64 { return criconfig.PodResources(p, &criconfig.Node{}).MemoryMax }
	c := podsync.Config{
		Runtime:           runtime,
		Images:            image.NewPuller(pulls(cfg, runtime, p, log)),
		Volumes:           volumes,
		Objects:           p.reader(),
		Probes:            p.probes,
		Hooks:             lifecycle.New(lifecycle.Config{Hooks: action.New(action.Config{Exec: runtime}), Events: p.events}),
		Users:             &podUsers{cfg: cfg},
		Statuses:          p.statuses,
		Events:            p.events,
		Node:              node.get,
		PeekNode:          node.peek,
		AdmitNode:         node.admit,
		ShuttingDown:      p.shutdown.InProgress,
		Handler:           p.handler,
		RecursiveReadOnly: node.recursiveReadOnly,
		Wake:              p.wake,
		Started:           p.rotator.Changed,
		HostIPs:           node.hostIPs,
		LogLinks:          cfg.Paths.ContainerLogs,
		MaxBackoff:        maxBackoff(cfg),
		BootID:            bootID(),
		Log:               log,
	}
	if p.cgroups != nil {
		c.Cgroups = p.cgroups
	}
	if below != nil {
		c.Below = below
	}
	if p.cluster != nil {
		c.Services, c.ConfirmNode = p.cluster.services, p.cluster.registrar.Refresh
	}
	return podsync.New(c)
}

// reader answers what pods refer to: from local files, and what is not there
// from the API server.
func (p *parts) reader() remote.Source {
	if p.cluster == nil {
		return p.objects
	}
	return remote.Prefer(p.objects, p.cluster.reader)
}

// handler is the runtime's handler for a pod's runtime class.
func (p *parts) handler(ctx context.Context, pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	class, err := p.reader().RuntimeClass(ctx, *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("find the pod's runtime class: %w", err)
	}
	return class.Handler, nil
}
