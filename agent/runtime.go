package agent

import (
	"path/filepath"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/container/logrotate"
	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/container/preload"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/resource/podcgroup"
	"github.com/tinylet/tinylet/cgroups"
)

// runtimeStage observes the container runtime and the cgroups, and maintains images and logs.
type runtimeStage struct {
	poller  *cgroups.Poller   // nil without cgroups
	cgroups *podcgroup.Driver // nil without cgroups
	pleg    *pleg.PLEG
	rotator *logrotate.Rotator
	images  *image.GC
	preload *preload.Preloader // nil without native API
}

// newRuntimeStage also sets the limits of the cgroups for which resources are reserved.
func newRuntimeStage(core *core) (_ *runtimeStage, err error) {
	cfg, kubelet := core.cfg, &core.cfg.Kubelet
	s := new(runtimeStage)
	if core.tree != nil {
		if s.poller, err = core.tree.NewPoller(); err != nil {
			return nil, err
		}
		s.cgroups = podcgroup.New(core.tree, core.node.SystemdCgroups)
	}
	podcgroup.EnforceReserved(cfg, core.tree, core.node.WithDriver(criconfig.DriverCgroupfs), core.events, core.log)
	s.pleg = pleg.New(pleg.Config{Runtime: core.runtime, Log: core.log, Connected: func() {
		// The runtime may have been restarted, upgraded or reconfigured.
		if core.guard != nil {
			core.guard.RuntimeConnected()
		}
		core.node.RuntimeConnected()
		if core.hostNetwork {
			network.RemoveTornResults(network.ResultsDir, core.log)
		}
		core.networkInputs.Trigger()
	}})
	s.rotator, err = logrotate.New(logrotate.Config{
		Reopen: core.runtime,
		Containers: func() []logrotate.Log {
			return logrotate.LogsOf(core.statuses.List(), core.node.Peek)
		},
		AfterCheck: core.pressure.Trigger, // logs have grown
		MaxSize:    cfg.LogMaxBytes(),
		MaxFiles:   int(*kubelet.ContainerLogMaxFiles),
		Notify:     core.statuses.Notify,
		Workers:    int(*kubelet.ContainerLogMaxWorkers),
		Interval:   kubelet.ContainerLogMonitorInterval.Duration,
		Log:        core.log,
	})
	if err != nil {
		return nil, err
	}
	if core.native != nil {
		s.preload, err = preload.New(preload.Config{
			Dir:       cfg.Tinylet.ImagesFolder,
			StateFile: filepath.Join(cfg.Paths.Root, "tinylet", "images.journal"),
			Importer:  core.native,
			Images:    core.runtime,
			Events:    core.events,
			Log:       core.log,
		})
		if err != nil {
			return nil, err
		}
	}
	s.images, err = image.NewGC(image.GCConfig{
		Images: core.runtime,
		InUse:  func() []string { return image.InUse(core.statuses.List()) },
		High:   int(*kubelet.ImageGCHighThresholdPercent),
		Low:    int(*kubelet.ImageGCLowThresholdPercent),
		MinAge: kubelet.ImageMinimumGCAge.Duration,
		MaxAge: kubelet.ImageMaximumGCAge.Duration,
		Events: core.events,
		Log:    core.log,
	})
	return s, err
}
