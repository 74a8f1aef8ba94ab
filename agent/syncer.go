package agent

import (
	"context"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/oom"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
	"github.com/tinylet/tinylet/agent/resource/userns"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// newSyncer builds what syncs one pod.
func (a *agent) newSyncer() *podsync.Syncer {
	cfg, node, log := a.cfg, a.node, a.log
	a.volumes = volume.New(cfg.Paths.Root)
	a.volumes.MemoryLimit = func(p *v1.Pod) int64 { return criconfig.UsableMemory(p, node.Allocatable()) }
	objects := a.reader()
	pulls := image.ConfigFrom(cfg)
	pulls.Images, pulls.Events, pulls.Log = a.runtime, a.events, log
	pulls.Node = image.NewNodeAuth(cfg.Paths.Root, os.Getenv("HOME"), log)
	if a.preload != nil {
		pulls.WaitPreloaded = a.preload.Wait
	}
	c := podsync.Config{
		Runtime:     a.runtime,
		Images:      image.NewPuller(pulls),
		Volumes:     a.volumes,
		Objects:     objects,
		Probes:      a.probes,
		Hooks:       hook.New(handler.New(handler.Config{Exec: a.runtime}), a.events),
		Users:       &userns.Lazy{Config: cfg},
		Allocations: checkpoint.Open(filepath.Join(cfg.Paths.Root, "tinylet", "allocations"), log),
		Ready:       func() bool { return a.mux.Ready() },
		Resizable: resize.Features{
			LimitedSwap: node.LimitedSwap(),
			StaticCPU:   a.cpus != nil,
		},
		CPUs:         a.cpus,
		OOM:          a.oomWatcher(),
		Statuses:     a.statuses,
		Events:       a.events,
		Node:         node.Get,
		PeekNode:     node.Peek,
		AdmitNode:    node.Admission,
		ShuttingDown: a.shutdown.InProgress,
		Pressure:     a.eviction.Conditions,
		PodAdded:     a.eviction.PodAdded,
		Handler: func(ctx context.Context, p *v1.Pod) (string, error) {
			return apiobjects.RuntimeHandler(ctx, objects, p)
		},
		RecursiveReadOnly: node.RecursiveReadOnly,
		Wake:              a.wakeups.Wake,
		HostIPs:           node.HostIPs,
		LogLinks:          cfg.Paths.ContainerLogs,
		MaxBackoff:        cfg.MaxBackoff(),
		BootID:            nodeinfo.BootID(),
		Log:               log,
	}
	if a.cgroups != nil {
		c.Cgroups = a.cgroups
	}
	if a.native != nil {
		c.NativeAPI = a.native
	}
	if a.cluster != nil {
		c.Services, c.ConfirmNode = a.cluster.services, a.cluster.registrar.Refresh
		c.NetworkProblem = a.cluster.inputs.NetworkProblem
	}
	return podsync.New(c)
}

// oomWatcher returns the watcher of OOM kills; nil without cgroups.
func (a *agent) oomWatcher() *oom.Watcher {
	if a.tree == nil {
		return nil
	}
	return oom.New(oom.Config{
		Tree: a.tree, Poller: a.poller, Node: a.node.Peek, Pods: a.statuses.List, Wake: a.wakeups.Wake, Events: a.events, Log: a.log,
	})
}

// reader returns the reader of the objects that pods refer to: local files first, then the API
// server.
func (a *agent) reader() objects.Reader {
	if a.cluster == nil {
		return a.objects
	}
	return apiobjects.Chain(a.objects, a.cluster.reader)
}
