package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/podworker/syncloop"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/resource/oom"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
	"github.com/tinylet/tinylet/agent/resource/userns"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// podStage syncs the pods of the sources.
type podStage struct {
	objects   *objects.Folder
	probes    *probe.Manager
	cpus      *cpumanager.Manager // nil with the CPU manager policy none
	syncer    *podsync.Syncer
	journaled *podsync.Journaled // nil without a journal
	workers   *podworker.Workers
	loop      *syncloop.Loop
	// sourceTasks run the sources of static pods.
	sourceTasks []health.Task
}

// reasonBadObject is the reason of events about invalid files of local objects.
const reasonBadObject = "InvalidObject"

func newPodStage(core *core, cl *cluster, rt *runtimeStage, reg *registrationStage) (_ *podStage, err error) {
	cfg := core.cfg
	s := new(podStage)
	if s.sourceTasks, err = newSourceTasks(core); err != nil {
		return nil, err
	}
	s.objects, err = objects.NewFolder(objects.Config{
		Path:    cfg.Tinylet.ObjectsFolder,
		Log:     core.log,
		Changed: core.objectChanged,
		Event:   func(message string) { core.events.Warning(pod.Ref{}, reasonBadObject, message) },
	})
	if err != nil {
		return nil, err
	}
	saved, save := probe.OpenState(filepath.Dir(cfg.Tinylet.SocketPath), core.log)
	s.probes = probe.New(probe.Config{
		Actions: handler.New(core.runtime), ResultChanged: core.wakeups.Wake, HostIPs: core.node.HostIPs,
		Events: core.events, Log: core.log, SavedState: saved, SaveState: save, BootID: machine.BootID(machine.Roots{}),
	})
	s.cpus, err = cpumanager.New(cpumanager.Config{
		Kubelet: &cfg.Kubelet, File: filepath.Join(cfg.Paths.State, "cpus.json"), Runtime: core.runtime, Tree: core.tree, Node: core.node.Peek,
		Pods: core.statuses.List, Notify: core.statuses.Notify, Events: core.events, Log: core.log,
	})
	if err != nil {
		return nil, err
	}
	s.syncer = s.newSyncer(core, cl, rt, reg)
	var syncer podworker.Syncer = s.syncer
	if cl != nil && cl.journal != nil {
		s.journaled = podsync.NewJournaled(s.syncer, cl.journal, core.podStatuses)
		syncer = s.journaled
	}
	s.workers = podworker.NewWorkers(podworker.Config{
		Syncer: syncer, Wakeups: core.wakeups, Log: core.log,
		OnTerminated: func(types.UID) {
			core.shutdownState.Notify()
			core.podStatuses.Set()
		},
	})
	s.loop = syncloop.New(syncloop.Config{
		Updates: core.mux.Updates(), OnStatusReconciled: s.syncer.OnStatusReconciled,
		MarkSeen: func(source string) {
			core.mux.Seen(source)
			if core.mux.Ready() {
				s.syncer.SourcesReady()
			}
			core.podStatuses.Set() // orphaned mirror pods can be deleted now
		},
		// Without any source the configuration is wrong: remove no running pod.
		Ready:   func() bool { return len(core.sources) > 0 && core.mux.Ready() },
		Changes: rt.pleg.Changes(), Snapshots: rt.pleg.Snapshots(),
		Workers: s.workers, ListOrphans: s.syncer.ListOrphans, Log: core.log,
	})
	return s, nil
}

func (s *podStage) newSyncer(core *core, cl *cluster, rt *runtimeStage, reg *registrationStage) *podsync.Syncer {
	cfg, node, log := core.cfg, core.node, core.log
	var reader objects.Reader = s.objects // local files come first
	if cl != nil {
		reader = apiobjects.Chain(s.objects, cl.reader)
	}
	pulls := image.ConfigFrom(cfg)
	pulls.Images, pulls.Events, pulls.Log = core.runtime, core.events, log
	pulls.Node = image.NewNodeAuth(cfg.Paths.Root, os.Getenv("HOME"), log)
	if rt.preload != nil {
		pulls.WaitPreloaded = rt.preload.Wait
	}
	c := podsync.Config{
		Runtime:     core.runtime,
		Images:      image.NewPuller(pulls),
		Volumes:     core.volumes,
		Objects:     reader,
		Probes:      s.probes,
		Hooks:       hook.New(handler.New(core.runtime), core.events),
		Users:       &userns.Lazy{Config: cfg},
		Allocations: checkpoint.Open(filepath.Join(cfg.Paths.Root, "tinylet", "allocations"), log),
		Ready:       core.mux.Ready,
		Resizable:   resize.Features{LimitedSwap: node.LimitedSwap(), StaticCPU: s.cpus != nil},
		CPUs:        s.cpus,
		Statuses:    core.statuses, Events: core.events,
		Node:         node.Get,
		PeekNode:     node.Peek,
		AdmitNode:    node.Admission,
		ShuttingDown: core.shutdownState.InProgress,
		Pressure:     core.pressure.Conditions,
		PodAdded:     core.pressure.PodAdded,
		Handler: func(ctx context.Context, p *v1.Pod) (string, error) {
			return apiobjects.RuntimeHandler(ctx, reader, p)
		},
		RecursiveReadOnly: node.RecursiveReadOnly,
		Wake:              core.wakeups.Wake,
		HostIPs:           node.HostIPs,
		LogLinks:          cfg.Paths.ContainerLogs,
		MaxBackoff:        cfg.MaxBackoff(),
		BootID:            machine.BootID(machine.Roots{}),
		Log:               log,
	}
	if core.tree != nil {
		c.Cgroups = rt.cgroups
		c.OOM = oom.New(oom.Config{
			Tree: core.tree, Poller: rt.poller, Node: node.Peek, Pods: core.statuses.List, Wake: core.wakeups.Wake, Events: core.events, Log: log,
		})
	}
	if core.native != nil {
		c.NativeAPI = core.native
	}
	if cl != nil {
		c.Services, c.ConfirmNode, c.NetworkProblem = cl.services, cl.object.Refresh, reg.inputs.NetworkProblem
	}
	return podsync.New(c)
}

// newSourceTasks returns the tasks of the sources of static pods.
func newSourceTasks(core *core) (tasks []health.Task, err error) {
	cfg := core.cfg
	add := func(name string, run func(ctx context.Context, set func(context.Context, source.PodSet)) error) {
		set := func(ctx context.Context, pods source.PodSet) { core.mux.Set(ctx, name, pods) }
		tasks = append(tasks, health.Task{Name: "source-" + name, Run: func(ctx context.Context) error { return run(ctx, set) }})
	}
	if path := cfg.Kubelet.StaticPodPath; path != "" {
		file, err := source.NewFile(source.FileConfig{Path: path, NodeName: cfg.NodeName, Log: core.log, Events: core.events})
		if err != nil {
			return nil, err
		}
		add(pod.SourceFile, file.Run)
	}
	if url := cfg.Kubelet.StaticPodURL; url != "" {
		web, err := source.NewHTTP(source.HTTPConfig{
			URL: url, Header: http.Header(cfg.Kubelet.StaticPodURLHeader), NodeName: cfg.NodeName,
			Period: cfg.Kubelet.HTTPCheckFrequency.Duration, Log: core.log, Events: core.events,
		})
		if err != nil {
			return nil, err
		}
		add(pod.SourceHTTP, web.Run)
	}
	return tasks, nil
}

// mayReport reports whether the API server may receive a pod's status.
func (s *podStage) mayReport(p *v1.Pod, status *v1.PodStatus) bool {
	return s.journaled == nil || s.journaled.MayReport(p, status)
}
