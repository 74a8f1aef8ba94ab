package agent

import (
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/resource/eviction"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/cgroups"
)

// environment holds the dependencies of an agent. In tests native, runtimeCalls, tree and
// guard may be nil.
type environment struct {
	cfg     *config.Config
	runtime container.Runtime
	native  *containerd.API
	// runtimeCalls returns the number of calls of the runtime.
	runtimeCalls func() uint64
	tree         *cgroups.Tree
	guard        *selfprotect.Guard // nil if ownCgroup is false
	// hostNetwork means that the agent owns the host's pod network. It is false in most tests.
	hostNetwork bool
	log         *slog.Logger
}

// core holds the shared state, which every stage may read and write. It is passive, so stages
// do not need those after them: they set a wakeup, and its receiver is built later.
type core struct {
	environment
	statuses *podstatus.Store
	events   *event.Recorder
	node     *nodeinfo.Info
	volumes  *volume.Manager
	mux      *source.Mux
	// sources are the names of the configured sources of pods.
	sources []string

	wakeups       *podworker.Wakeups // of the pod workers
	pressure      *eviction.Status   // node conditions, and the trigger of the eviction manager
	shutdownState *shutdown.State
	networkInputs *network.Inputs
	nodeStatus    wait.Wakeup // the inputs of the Node status have changed; for the registrar
	podStatuses   wait.Wakeup // what may be reported of pods has changed; for the status manager
	runtimeStatus wait.Wakeup // the runtime's status may have changed; for the collector
	supervisor    *health.Supervisor
	stopping      chan struct{} // closed when the agent stops
}

// newCore starts nothing. It uses a copy of env.cfg, in which the reserved CPU is replaced if
// reservedSystemCPUs is set (cpumanager.Reserve).
func newCore(env environment) (*core, error) {
	cfg := *env.cfg
	if err := cpumanager.Reserve(&cfg.Kubelet); err != nil {
		return nil, err
	}
	env.cfg = &cfg
	c := &core{
		environment: env, statuses: podstatus.NewStore(), events: event.NewRecorder(env.log), volumes: volume.New(env.cfg.Paths.Root),
		wakeups: podworker.NewWakeups(), pressure: eviction.NewStatus(), shutdownState: shutdown.NewState(), networkInputs: network.NewInputs(),
		nodeStatus: wait.NewWakeup(), podStatuses: wait.NewWakeup(), runtimeStatus: wait.NewWakeup(),
		supervisor: health.NewSupervisor(env.log), stopping: make(chan struct{}),
	}
	var err error
	if c.node, err = nodeinfo.New(env.cfg, env.runtime, env.tree); err != nil {
		return nil, err
	}
	c.volumes.MemoryLimit = func(p *v1.Pod) int64 { return criconfig.UsableMemory(p, c.node.Allocatable()) }
	for _, s := range [][2]string{
		{pod.SourceFile, env.cfg.Kubelet.StaticPodPath}, {pod.SourceHTTP, env.cfg.Kubelet.StaticPodURL}, {pod.SourceAPI, env.cfg.Kubeconfig},
	} {
		if s[1] != "" {
			c.sources = append(c.sources, s[0])
		}
	}
	c.mux = source.NewMux(c.events, c.sources...)
	return c, nil
}

// wakeAll triggers a sync of all pods.
func (c *core) wakeAll() {
	for _, e := range c.statuses.List() {
		c.wakeups.Wake(e.Pod.UID)
	}
}

// objectChanged triggers a sync of the pods that refer to an object.
func (c *core) objectChanged(kind, namespace, name string) {
	for _, e := range c.statuses.List() {
		if objects.PodReferences(e.Pod, objects.Key{Kind: kind, Namespace: namespace, Name: name}) {
			c.wakeups.Wake(e.Pod.UID)
		}
	}
}
