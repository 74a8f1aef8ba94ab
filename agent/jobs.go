package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/container/logrotate"
	"github.com/tinylet/tinylet/agent/container/preload"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// assembleJobs builds what runs beside the pods' way.
func (p *parts) assembleJobs(cfg *config.Config, rt container.Runtime, below *below, node *nodeFacts, view *view, log *slog.Logger) (err error) {
	kubelet := &cfg.Kubelet
	p.objects, err = objects.NewFolder(objects.Config{
		Path:    cfg.Tinylet.ObjectsFolder,
		Log:     log,
		Changed: p.objectChanged,
		Event:   func(message string) { p.events.Warning(pod.Ref{}, reasonBadObject, message) },
	})
	if err != nil {
		return err
	}
	saved, save := probe.OpenState(runFolder(cfg), log)
	p.probes = probe.New(probe.Config{
		Actions: handler.New(handler.Config{Exec: rt}), ResultChanged: p.wake, HostIPs: node.hostIPs, Events: p.events, Log: log,
		SavedState: saved, SaveState: save, BootID: bootID(),
	})
	p.rotator, err = logrotate.New(logrotate.Config{
		Reopen:     rt,
		Containers: view.logs,
		AfterCheck: p.looked, // a log has grown
		MaxSize:    cfg.LogMaxBytes(),
		MaxFiles:   int(*kubelet.ContainerLogMaxFiles),
		Notify:     p.statuses.Notify,
		Workers:    int(*kubelet.ContainerLogMaxWorkers),
		Interval:   kubelet.ContainerLogMonitorInterval.Duration,
		Log:        log,
	})
	if err != nil {
		return err
	}
	if below != nil {
		p.preload, err = preload.New(preload.Config{
			Dir:       cfg.Tinylet.ImagesFolder,
			StateFile: filepath.Join(cfg.Paths.Root, "tinylet", "images.journal"),
			Importer:  below,
			Images:    rt,
			Events:    p.events,
			Log:       log,
		})
		if err != nil {
			return err
		}
	}
	if below != nil && view.tree != nil {
		p.lost = reaper.New(reaper.Config{
			Running: func(ctx context.Context) []reaper.Container {
				orphans, err := view.orphans(ctx, rt)
				if err != nil && ctx.Err() == nil {
					log.Debug("containers of pods that nobody knows are looked for again", "error", err)
				}
				return append(view.running(), orphans...)
			},
			AfterCheck: p.looked, // once a minute, also on a board alone
			Populated:  view.tree.Populated, Containers: rt, Tasks: below,
			Wake: p.wake, Events: p.events, Log: log,
		})
	}
	p.images, err = image.NewGC(image.GCConfig{
		Images: rt,
		InUse:  p.imagesInUse,
		High:   int(*kubelet.ImageGCHighThresholdPercent),
		Low:    int(*kubelet.ImageGCLowThresholdPercent),
		MinAge: kubelet.ImageMinimumGCAge.Duration,
		MaxAge: kubelet.ImageMaximumGCAge.Duration,
		Events: p.events,
		Log:    log,
	})
	return err
}

// reasonBadObject is for a file of the objects folder that is not as it
// should be.
const reasonBadObject = "InvalidObject"

// pulls is how images are pulled.
func pulls(cfg *config.Config, rt container.Runtime, p *parts, log *slog.Logger) image.Config {
	c := image.Config{
		Images: rt, Events: p.events, Serialize: *cfg.Kubelet.SerializeImagePulls, Log: log,
		Node:              image.NewNodeAuth(cfg.Paths.Root, os.Getenv("HOME"), log),
		MirrorCredentials: cfg.Tinylet.MirrorCredentials,
	}
	c.QPS, c.Burst = int(*cfg.Kubelet.RegistryPullQPS), int(cfg.Kubelet.RegistryBurst)
	if n := cfg.Kubelet.MaxParallelImagePulls; n != nil {
		c.MaxParallel = int(*n)
	}
	if p.preload != nil {
		c.WaitPreloaded = p.preload.Wait
	}
	return c
}

// imagesInUse are the images that pods name.
func (p *parts) imagesInUse() []string {
	var names []string
	for _, e := range p.statuses.List() {
		if e.Status.Phase == v1.PodFailed || e.Status.Phase == v1.PodSucceeded {
			continue
		}
		for c := range pod.Containers(&e.Pod.Spec) {
			names = append(names, c.Image)
		}
		for i := range e.Pod.Spec.Volumes {
			if source := e.Pod.Spec.Volumes[i].Image; source != nil {
				names = append(names, source.Reference)
			}
		}
	}
	return names
}

// logs are those of the containers that run.
func (v *view) logs() []logrotate.Log {
	node, ok := v.node.peek()
	if !ok {
		return nil
	}
	var out []logrotate.Log
	for _, e := range v.statuses.List() {
		for c := range e.Running() {
			out = append(out, logrotate.Log{ID: c.ID, Path: v.logPath(e.Pod, node, c.Name, c.Restarts)})
		}
	}
	return out
}

// running are the containers that run, as far as is known without the runtime.
func (v *view) running() []reaper.Container {
	node, ok := v.node.peek()
	if !ok {
		return nil
	}
	var out []reaper.Container
	for _, e := range v.statuses.List() {
		cgroup := ""
		for c := range e.Running() {
			if cgroup == "" {
				cgroup = criconfig.PodCgroup(e.Pod, node)
			}
			out = append(out, reaper.Container{Ref: pod.RefOf(e.Pod), Name: c.Name, ID: c.ID, Cgroup: criconfig.ContainerCgroup(cgroup, c.ID, node)})
		}
	}
	return out
}
