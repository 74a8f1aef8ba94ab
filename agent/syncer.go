package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/oom"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
	"github.com/tinylet/tinylet/agent/resource/userns"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/cgroups"
)

// assembleSyncer builds what does the work on a pod.
func (p *parts) assembleSyncer(cfg *config.Config, runtime container.Runtime, below *below, tree *cgroups.Tree, node *nodeFacts, log *slog.Logger) *podsync.Syncer {
	volumes := volume.New(cfg.Paths.Root)
	volumes.MemoryLimit = func(p *v1.Pod) int64 { return memoryLimit(p, node.allocatable) }
	p.volumes = volumes
	c := podsync.Config{
		Runtime:     runtime,
		Images:      image.NewPuller(pulls(cfg, runtime, p, log)),
		Volumes:     volumes,
		Objects:     p.reader(),
		Probes:      p.probes,
		Hooks:       hook.New(hook.Config{Hooks: handler.New(handler.Config{Exec: runtime}), Events: p.events}),
		Users:       &userns.Lazy{Config: cfg},
		Allocations: checkpoint.Open(filepath.Join(cfg.Paths.Root, "tinylet", "allocations"), log),
		Ready:       func() bool { return p.mux.Ready() },
		Resizable: resize.Features{
			LimitedSwap: cfg.Kubelet.MemorySwap.SwapBehavior == swapLimited && node.accounting.swap,
			StaticCPU:   p.cpus != nil,
		},
		CPUs:              p.cpus,
		OOM:               p.oomWatcher(tree, node, log),
		Statuses:          p.statuses,
		Events:            p.events,
		Node:              node.get,
		PeekNode:          node.peek,
		AdmitNode:         node.admit,
		ShuttingDown:      p.shutdown.InProgress,
		Pressure:          p.evictions.under,
		PodAdded:          p.evictions.arrived,
		Handler:           p.handler,
		RecursiveReadOnly: node.recursiveReadOnly,
		Wake:              p.wake,
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
		c.NativeAPI = below
	}
	if p.cluster != nil {
		c.Services, c.ConfirmNode = p.cluster.services, p.cluster.registrar.Refresh
	}
	return podsync.New(c)
}

// memoryLimit is how much memory in bytes a pod can use: its own limit where
// that is less than what all pods may use of the node (calculateEmptyDirMemorySize
// in pkg/volume/emptydir).
func memoryLimit(p *v1.Pod, allocatable v1.ResourceList) int64 {
	own, all := criconfig.PodResources(p, &criconfig.Node{}).MemoryMax, allocatable.Memory().Value()
	if own <= 0 || all > 0 && all < own {
		return all
	}
	return own
}

// oomWatcher knows what the kernel killed for want of memory; nil without
// cgroups.
func (p *parts) oomWatcher(tree *cgroups.Tree, node *nodeFacts, log *slog.Logger) *oom.Watcher {
	if tree == nil {
		return nil
	}
	return oom.New(oom.Config{
		Tree: tree, Poller: p.poller, Node: node.peek, Pods: p.statuses.List, Wake: p.wake, Events: p.events, Log: log,
	})
}

// reader answers what pods refer to: from local files, and what is not there
// from the API server.
func (p *parts) reader() apiobjects.Source {
	if p.cluster == nil {
		return p.objects
	}
	return apiobjects.Chain(p.objects, p.cluster.reader)
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
