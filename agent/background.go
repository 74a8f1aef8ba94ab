package agent

import (
	"context"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/container/logrotate"
	"github.com/tinylet/tinylet/agent/container/preload"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// assembleBackground builds what runs in addition to the pod workers: the local objects,
// probes, log rotation, image preloading, the reaper and image garbage collection.
func (a *agent) assembleBackground() (err error) {
	cfg, kubelet := a.cfg, &a.cfg.Kubelet
	a.objects, err = objects.NewFolder(objects.Config{
		Path:    cfg.Tinylet.ObjectsFolder,
		Log:     a.log,
		Changed: a.objectChanged,
		Event:   func(message string) { a.events.Warning(pod.Ref{}, reasonBadObject, message) },
	})
	if err != nil {
		return err
	}
	saved, save := probe.OpenState(runFolder(cfg), a.log)
	a.probes = probe.New(probe.Config{
		Actions: handler.New(handler.Config{Exec: a.runtime}), ResultChanged: a.wakeups.Wake, HostIPs: a.node.HostIPs, Events: a.events, Log: a.log,
		SavedState: saved, SaveState: save, BootID: nodeinfo.BootID(),
	})
	a.rotator, err = logrotate.New(logrotate.Config{
		Reopen: a.runtime,
		Containers: func() []logrotate.Log {
			return logrotate.LogsOf(a.statuses.List(), a.node.Peek)
		},
		AfterCheck: a.eviction.Trigger, // logs have grown
		MaxSize:    cfg.LogMaxBytes(),
		MaxFiles:   int(*kubelet.ContainerLogMaxFiles),
		Notify:     a.statuses.Notify,
		Workers:    int(*kubelet.ContainerLogMaxWorkers),
		Interval:   kubelet.ContainerLogMonitorInterval.Duration,
		Log:        a.log,
	})
	if err != nil {
		return err
	}
	if a.native != nil {
		a.preload, err = preload.New(preload.Config{
			Dir:       cfg.Tinylet.ImagesFolder,
			StateFile: filepath.Join(cfg.Paths.Root, "tinylet", "images.journal"),
			Importer:  a.native,
			Images:    a.runtime,
			Events:    a.events,
			Log:       a.log,
		})
		if err != nil {
			return err
		}
	}
	if a.native != nil && a.tree != nil {
		a.orphans = &reaper.Orphans{Runtime: a.runtime, Tree: a.tree, Node: a.node.Refresh, Pods: a.unknownPods}
		a.reaper = reaper.New(reaper.Config{
			Running: func(ctx context.Context) []reaper.Container {
				orphans, err := a.orphans.List(ctx)
				if err != nil && ctx.Err() == nil {
					a.log.Debug("cannot list containers of orphaned pods", "error", err)
				}
				return append(reaper.RunningContainers(a.statuses.List(), a.node.Peek), orphans...)
			},
			AfterCheck: a.eviction.Trigger, // once a minute, also on a standalone node
			Populated:  a.tree.Populated, Runtime: a.runtime, Tasks: a.native,
			Wake: a.wakeups.Wake, Events: a.events, Log: a.log,
		})
	}
	a.images, err = image.NewGC(image.GCConfig{
		Images: a.runtime,
		InUse:  func() []string { return image.InUse(a.statuses.List()) },
		High:   int(*kubelet.ImageGCHighThresholdPercent),
		Low:    int(*kubelet.ImageGCLowThresholdPercent),
		MinAge: kubelet.ImageMinimumGCAge.Duration,
		MaxAge: kubelet.ImageMaximumGCAge.Duration,
		Events: a.events,
		Log:    a.log,
	})
	return err
}

// unknownPods returns the pods that terminate and have no status, because their spec is not
// known.
func (a *agent) unknownPods() map[types.UID]bool {
	unknown := make(map[types.UID]bool)
	for uid, state := range a.workers.States() {
		if _, _, known := a.statuses.Get(uid); state == podworker.Terminating && !known {
			unknown[uid] = true
		}
	}
	return unknown
}

// reasonBadObject is the reason of events about invalid files of local objects.
const reasonBadObject = "InvalidObject"

// assembleCPUs builds the CPU manager; with the policy none there is none.
func (a *agent) assembleCPUs() (err error) {
	a.cpus, err = cpumanager.New(cpumanager.Config{
		Kubelet: &a.cfg.Kubelet, File: filepath.Join(a.cfg.Paths.State, "cpus.json"), Runtime: a.runtime, Tree: a.tree, Node: a.node.Peek,
		Pods: a.statuses.List, Notify: a.statuses.Notify, Events: a.events, Log: a.log,
	})
	return err
}
