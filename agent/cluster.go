package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/eventsink"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/node/clock"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// cluster holds the components that need an API server.
type cluster struct {
	clock     *clock.Clock
	meter     apiclient.Meter // of all clients, including those that only enrol
	state     *local.ClusterSource
	identity  *identity.Identity
	objects   *apiobjects.Objects
	pods      *podsync.APIPods
	registrar *registration.Registrar
	reporter  *statusmanager.Manager
	inputs    *registration.Collector
	events    *eventsink.Sink
	journal   *offline.Store     // nil if it cannot be used
	journaled *podsync.Journaled // nil without a journal
	reader    objects.Reader
	services  func(ctx context.Context, namespace string) ([]*v1.Service, error)

	// assigned means that the API server has listed the node's pods: then the objects that
	// they refer to may be requested.
	assigned atomic.Bool
}

// assembleCluster builds the clients of the API server, unless the node is standalone. It comes
// before what reads objects.
func (a *agent) assembleCluster() (err error) {
	cfg, rt, node, log := a.cfg, a.runtime, a.node, a.log
	if cfg.Kubeconfig == "" {
		return nil
	}
	pace := cfg.UpdateIntervals()
	c := &cluster{
		clock: clock.New(clock.Config{LowerBound: version.BuildTime(), Log: log}),
	}
	c.identity, err = identity.New(identity.Config{
		Kubeconfig:          cfg.Kubeconfig,
		BootstrapKubeconfig: cfg.BootstrapKubeconfig,
		EnrolKubeconfig:     cfg.Tinylet.EnrolKubeconfig,
		PKI:                 cfg.Paths.PKI,
		NodeName:            cfg.NodeName,
		Rotate:              cfg.Kubelet.RotateCertificates,
		ServerTLSBootstrap:  cfg.Kubelet.ServerTLSBootstrap,
		ServingCert:         cfg.Kubelet.TLSCertFile,
		ServingKey:          cfg.Kubelet.TLSPrivateKeyFile,
		Addresses:           func() ([]string, []net.IP) { return servingNames(cfg.NodeName, node.HostIPs()) },
		Clock:               c.clock,
		NewClient: func(config apiclient.Config) (*apiclient.Client, error) {
			config.Meter, config.PingAfter = &c.meter, pace.PingAfter
			return apiclient.New(config)
		},
		Events:    a.events,
		Log:       log,
		UserAgent: "tinylet/" + version.Release(),
	})
	if err != nil {
		return err
	}
	api := apiclient.Deferred(c.identity.Client)
	if c.objects, err = apiobjects.New(apiobjects.Config{API: api, Log: log, Changed: a.objectChanged, Recovered: c.recovered}); err != nil {
		return err
	}
	c.reader = c.objects
	services := c.objects.Services
	stored, err := a.openJournal(c.contacted, c.assigned.Load)
	if err != nil {
		return err
	}
	if c.journal = stored.Store; c.journal != nil {
		c.clock.RaiseLowerBound(c.journal.Newest())
		reader := c.journal.Reader(c.objects)
		c.reader, services = reader, reader.Services
	}
	c.services = services
	c.inputs = registration.NewCollector(registration.CollectorConfig{
		Config: cfg, Runtime: rt, Node: node, RuntimeHealthy: a.pleg.Healthy, RecordResponse: a.pleg.RecordResponse,
		OnAddressesChanged: func() { a.addressesChanged(c) }, OnNetworkReady: a.wakeAll, Problem: c.identity.Problem, Pressures: a.eviction.Conditions,
		ShuttingDown: func() bool { return a.shutdown.InProgress() },
	})
	c.registrar = registration.New(registration.Config{
		API: api, NodeName: cfg.NodeName, Register: cfg.Kubelet.RegisterNode == nil || *cfg.Kubelet.RegisterNode,
		BeforeUpdate: func() { // each nodeStatusUpdateFrequency
			a.eviction.Trigger()
			c.inputs.CheckAddresses()
		},
		Inputs:               c.inputs.Get,
		StatusUpdateInterval: cfg.Kubelet.NodeStatusUpdateFrequency.Duration,
		StatusReportInterval: cfg.Kubelet.NodeStatusReportFrequency.Duration,
		LeaseDuration:        time.Duration(cfg.Kubelet.NodeLeaseDurationSeconds) * time.Second,
		RenewInterval:        pace.LeaseRenewal,

		HasKubeletVolumes: func() (bool, error) { return a.volumes.HasForeign() },
		NodeChanged: func(n *v1.Node) {
			node.SetNode(n)
			if a.network != nil {
				a.network.Assigned(n.Spec.PodCIDRs)
			}
			c.reporter.Trigger("")
		},
		Recovered: c.recovered, Events: a.events, Log: log,
	})
	a.eviction.OnConditionsChanged = c.registrar.Trigger
	c.inputs.OnChange = c.registrar.Trigger
	c.reporter = statusmanager.New(statusmanager.Config{
		API: api, NodeName: cfg.NodeName, NodeUID: c.registrar.UID,
		List: func() []statusmanager.Entry { return podsync.Reportable(a.statuses.List(), c.mayReport) }, Changed: a.statuses.Changed(),
		Done: func(uid types.UID) bool {
			state, ok := a.workers.State(uid)
			return ok && state == podworker.Terminated
		},
		StaticGone: a.staticGone,
		Coalesce:   pace.StatusDelay,
		Recovered:  c.recovered,
		Log:        log,
	})
	c.events, err = eventsink.New(eventsink.Config{
		API: api, Watch: a.events.Watch, Ready: c.clock.Ready, NodeName: cfg.NodeName,
		Coalesce: pace.EventInterval, QPS: float32(*cfg.Kubelet.EventRecordQPS), Burst: int(cfg.Kubelet.EventBurst),
		Recovered: c.recovered, Log: log,
	})
	if err != nil {
		return err
	}
	pods, err := source.NewAPI(source.APIConfig{
		API: api, NodeName: cfg.NodeName,
		All: func(pods []*v1.Pod) {
			c.objects.SetReferencingPods(pods)
			c.reporter.SetPods(pods)
			if c.journal != nil {
				c.journal.FinishAll(pods, shutdown.Terminated)
			}
		},
		Recovered: c.recovered, Events: a.events, Log: log,
	})
	if err != nil {
		return err
	}
	c.pods = &podsync.APIPods{
		API: pods, Store: c.journal, Log: log, Restored: make(chan struct{}),
		Set:   func(ctx context.Context, name string, pods source.PodSet) { a.mux.Set(ctx, name, pods) },
		Known: func(uid types.UID) bool { _, known := a.workers.State(uid); return known },
		Listed: func() {
			c.assigned.Store(true)
			a.wakeAll() // objects may have changed while they could not be watched
		},
	}
	c.state = &local.ClusterSource{
		Metered: cfg.Tinylet.Metered, Identity: c.identity, Registrar: c.registrar, Meter: &c.meter, Journal: stored,
		// The clock comes first: it may be the cause of the others.
		Problem: problems(c.clock.Problem, c.identity.Problem, stored.Remedy),
	}
	a.cluster = c
	return nil
}

// openJournal opens the journal of the API server's pods. A journal that another process has
// open belongs to another agent, with another socket.
func (a *agent) openJournal(contacted, mayRead func() bool) (*offline.Journal, error) {
	cfg := a.cfg
	c := offline.SetupConfig{
		Dir: filepath.Join(cfg.Paths.State, "journal"), Tinylet: &cfg.Tinylet, Contacted: contacted, MayRead: mayRead,
		Started: func(uid types.UID) *metav1.Time {
			if _, s, ok := a.statuses.Get(uid); ok {
				return s.StartTime
			}
			return nil
		},
		Events: a.events, Log: a.log,
	}
	j, err := offline.Setup(c)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("%w: it has the journal in %q open, and its socket is not %q; stop it first (two agents would start every pod twice)",
			local.ErrOtherAgent, c.Dir, cmp.Or(cfg.Tinylet.SocketPath, local.DefaultSocketPath))
	}
	return j, err
}

// addressesChanged handles a change of the node's addresses, which its serving certificate and
// each pod's status contain.
func (a *agent) addressesChanged(c *cluster) {
	c.identity.AddressesChanged()
	a.wakeAll()
}

// wakeAll triggers a sync of all pods.
func (a *agent) wakeAll() {
	for _, e := range a.statuses.List() {
		a.wakeups.Wake(e.Pod.UID)
	}
}

// mayReport reports whether the API server may receive a pod's status.
func (c *cluster) mayReport(p *v1.Pod, s *v1.PodStatus) bool {
	return c.journaled == nil || c.journaled.MayReport(p, s)
}

// recovered returns the client's channel that is closed when an outage ends; nil before there is
// a client, for which requests wait.
func (c *cluster) recovered() <-chan struct{} {
	if client := c.identity.Current(); client != nil {
		return client.Recovered()
	}
	return nil
}

// tasks returns the tasks of the cluster's components.
func (c *cluster) tasks() []health.Task {
	return []health.Task{
		{Name: "clock", Run: c.clock.Run}, {Name: "identity", Run: c.identity.Run}, {Name: "api-objects", Run: c.objects.Run},
		{Name: "node-inputs", Run: c.inputs.Run}, {Name: "registrar", Run: c.registrar.Run}, {Name: "pod-statuses", Run: c.reporter.Run},
		{Name: "events", Run: c.events.Run},
	}
}

// contacted reports whether the API server has responded since the agent's start.
func (c *cluster) contacted() bool {
	client := c.identity.Current()
	if client == nil {
		return false
	}
	answered, _ := client.Contact()
	return !answered.IsZero()
}

// objectChanged triggers a sync of the pods that refer to an object.
func (a *agent) objectChanged(kind, namespace, name string) {
	for _, e := range a.statuses.List() {
		if objects.PodReferences(e.Pod, kind, namespace, name) {
			a.wakeups.Wake(e.Pod.UID)
		}
	}
}

// staticGone reports whether no source has a static pod of that name, and no such pod is left.
func (a *agent) staticGone(namespace, name string) bool {
	if !a.mux.Ready() {
		return false
	}
	for _, e := range a.statuses.List() {
		if pod.IsStatic(e.Pod) && e.Pod.Namespace == namespace && e.Pod.Name == name {
			return false
		}
	}
	return true
}

// servingNames returns the subject alternative names of the node's serving certificate.
func servingNames(nodeName string, hostIPs []string) (names []string, ips []net.IP) {
	for _, text := range hostIPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	return []string{nodeName}, ips
}
