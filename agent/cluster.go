package agent

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/eventsink"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/node/clock"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// cluster is what the agent has because there is an API server.
type cluster struct {
	metered   bool
	clock     *clock.Clock
	meter     apiclient.Meter // of all clients, also of those that only enrol
	identity  *identity.Identity
	objects   *apiobjects.Objects
	pods      *source.API
	registrar *registration.Registrar
	reporter  *statusmanager.Manager
	inputs    *nodeInputs
	events    *eventsink.Sink
	keeping   *keeping
	journal   *offline.Store // nil if it cannot be used
	journaled *journaled     // nil without a journal
	reader    offline.Objects
	services  func(ctx context.Context, namespace string) ([]*v1.Service, error)
	log       *slog.Logger

	// assigned says that the server has told which pods are the node's: then
	// it may be asked for what they refer to.
	assigned atomic.Bool

	known atomic.Pointer[[]*v1.Pod] // the pods as the server has them
	news  chan struct{}             // one slot: known is new
}

// joins says whether there is to be an API server.
func joins(cfg *config.Config) bool { return cfg.Kubeconfig != "" }

// assembleCluster builds what speaks to the API server. It comes before all
// that asks for objects.
func (p *parts) assembleCluster(cfg *config.Config, rt container.Runtime, node *nodeFacts, log *slog.Logger) (err error) {
	pace := cfg.UpdateIntervals()
	c := &cluster{
		metered: cfg.Tinylet.Metered, log: log, news: make(chan struct{}, 1),
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
		Addresses:           func() ([]string, []net.IP) { return servingNames(cfg.NodeName, node.hostIPs()) },
		Clock:               c.clock,
		NewClient: func(config apiclient.Config) (*apiclient.Client, error) {
			config.Meter, config.PingAfter = &c.meter, pace.PingAfter
			return apiclient.New(config)
		},
		Events:    p.events,
		Log:       log,
		UserAgent: "tinylet/" + version.Release(),
	})
	if err != nil {
		return err
	}
	api := apiclient.Deferred{Client: c.identity.Client}
	if c.objects, err = apiobjects.New(apiobjects.Config{API: api, Log: log, Changed: p.objectChanged, Recovered: c.recovered}); err != nil {
		return err
	}
	c.reader = c.objects
	services := c.objects.Services
	if c.keeping, err = p.openJournal(cfg, c.met, c.assigned.Load, log); err != nil {
		return err
	}
	if c.journal = c.keeping.store; c.journal != nil {
		c.clock.RaiseLowerBound(c.journal.Newest())
		reader := c.journal.Reader(c.objects)
		c.reader, services = reader, reader.Services
	}
	c.services = services
	c.inputs = newNodeInputs(cfg, rt, node)
	c.inputs.healthy, c.inputs.heard = p.pleg.Healthy, p.pleg.RecordResponse
	c.inputs.shuttingDown = func() bool { return p.shutdown.InProgress() }
	c.inputs.under = func() evictionapi.Conditions { return p.evictions.under() }
	c.inputs.problem, c.inputs.moved = c.identity.Problem, func() { p.moved(c) }
	c.registrar = registration.New(registration.Config{
		API: api, NodeName: cfg.NodeName, Register: cfg.Kubelet.RegisterNode == nil || *cfg.Kubelet.RegisterNode,
		BeforeUpdate: func() { // each nodeStatusUpdateFrequency
			p.looked()
			c.inputs.checkAddresses()
		},
		Inputs:               c.inputs.get,
		StatusUpdateInterval: cfg.Kubelet.NodeStatusUpdateFrequency.Duration,
		StatusReportInterval: cfg.Kubelet.NodeStatusReportFrequency.Duration,
		LeaseDuration:        time.Duration(cfg.Kubelet.NodeLeaseDurationSeconds) * time.Second,
		RenewInterval:        pace.LeaseRenewal,

		HasKubeletVolumes: func() (bool, error) { return p.volumes.HasForeign() },
		NodeChanged: func(n *v1.Node) {
			node.registered(n)
			if p.network != nil {
				p.network.Assigned(n.Spec.PodCIDRs)
			}
			c.reporter.Trigger("")
		},
		Recovered: c.recovered, Events: p.events, Log: log,
	})
	c.inputs.changed = c.registrar.Trigger
	c.reporter = statusmanager.New(statusmanager.Config{
		API: api, NodeName: cfg.NodeName, NodeUID: c.registrar.UID,
		List: p.reportable, Changed: p.statuses.Changed(),
		Done: func(uid types.UID) bool {
			state, ok := p.workers.State(uid)
			return ok && state == podworker.Terminated
		},
		StaticGone: p.staticGone,
		Coalesce:   pace.StatusDelay,
		Recovered:  c.recovered,
		Log:        log,
	})
	c.events, err = eventsink.New(eventsink.Config{
		API: api, Watch: p.events.Watch, Ready: c.clock.Ready, NodeName: cfg.NodeName,
		Coalesce: pace.EventInterval, QPS: float32(*cfg.Kubelet.EventRecordQPS), Burst: int(cfg.Kubelet.EventBurst),
		Recovered: c.recovered, Log: log,
	})
	if err != nil {
		return err
	}
	c.pods, err = source.NewAPI(source.APIConfig{
		API: api, NodeName: cfg.NodeName,
		All: func(pods []*v1.Pod) {
			c.objects.SetReferencingPods(pods)
			c.reporter.SetPods(pods)
			c.heard(pods)
		},
		Recovered: c.recovered, Events: p.events, Log: log,
	})
	p.cluster = c
	return err
}

// moved says that the node's addresses have changed. They are in its serving
// certificate and in each pod's status.
func (p *parts) moved(c *cluster) {
	c.identity.AddressesChanged()
	for _, e := range p.statuses.List() {
		p.wake(e.Pod.UID)
	}
}

// recovered is that of the client. Until there is one, requests wait for it.
func (c *cluster) recovered() <-chan struct{} {
	if client := c.identity.Current(); client != nil {
		return client.Recovered()
	}
	return nil
}

// tasks are what runs because there is an API server.
func (c *cluster) tasks() []task {
	return []task{
		{name: "clock", run: c.clock.Run}, {name: "identity", run: c.identity.Run}, {name: "api-objects", run: c.objects.Run},
		{name: "node-inputs", run: c.inputs.Run}, {name: "registrar", run: c.registrar.Run}, {name: "pod-statuses", run: c.reporter.Run},
		{name: "events", run: c.events.Run},
	}
}

// met says whether the server has answered since the agent's start.
func (c *cluster) met() bool {
	client := c.identity.Current()
	if client == nil {
		return false
	}
	answered, _ := client.Contact()
	return !answered.IsZero()
}

// told is how the agent does with the API server.
func (c *cluster) told() *local.Cluster {
	out := &local.Cluster{Metered: c.metered, Registered: c.registrar.UID() != "", Journal: c.keeping.told()}
	// The clock comes first: the rest may follow from it.
	out.Problem = joined(c.clock.Problem(), c.identity.Problem(), c.keeping.todo(out.Journal.Aside))
	certificates := c.identity.Stats()
	if expires := certificates.ClientExpiry; !expires.IsZero() {
		out.Expires = &expires
	}
	if expires := certificates.ServingExpiry; !expires.IsZero() {
		out.ServingExpires = &expires
	}
	out.Sent, out.Received = total(c.meter.Traffic())
	out.SentToday, out.ReceivedToday = c.meter.Today(time.Now())
	client := c.identity.Current()
	if client == nil {
		return out
	}
	answered, failure := client.Contact()
	if !answered.IsZero() {
		out.LastResponse = &answered
	}
	if failure != nil {
		out.Failure = failure.Error()
	}
	return out
}

// follow brings the API server's pods: first those that the journal remembers,
// which need no network, then those that the server has in their place.
func (c *cluster) follow(p *parts, log *slog.Logger) func(context.Context) error {
	told := false // also of an earlier call
	handedOver := sync.OnceFunc(func() { close(p.handedOver) })
	return func(ctx context.Context) error {
		if c.journal != nil && !told {
			remembered := c.journal.Pods()
			log.Info("pods are restored from the journal", "pods", len(remembered))
			p.mux.Set(ctx, pod.SourceRestore, source.PodSet{Pods: remembered})
		}
		handedOver()
		return c.pods.Run(ctx, func(ctx context.Context, wanted source.PodSet) {
			wanted.Replaces = pod.SourceRestore
			p.mux.Set(ctx, pod.SourceAPI, wanted)
			if !told && ctx.Err() == nil {
				told = true
				c.assigned.Store(true)
				c.forgetOthers(ctx, p, log)
				// What pods refer to may have changed while nobody could see it.
				for _, e := range p.statuses.List() {
					p.wake(e.Pod.UID)
				}
			}
		})
	}
}

// forgetOthers drops from the journal what the API server has not and no
// worker carries, such as pods that cannot be read any more.
func (c *cluster) forgetOthers(ctx context.Context, p *parts, log *slog.Logger) {
	if c.journal == nil {
		return
	}
	for _, uid := range c.journal.UIDs() {
		if _, known := p.workers.State(uid); known {
			continue
		}
		if err := c.journal.Forget(ctx, uid); err != nil {
			log.Warn("journal keeps a pod that is gone until its next write", "podUID", uid, "error", err)
		}
	}
}

// objectChanged has the pods looked at again that refer to an object.
func (p *parts) objectChanged(kind, namespace, name string) {
	for _, e := range p.statuses.List() {
		if objects.PodReferences(e.Pod, kind, namespace, name) {
			p.wake(e.Pod.UID)
		}
	}
}

// reportable are the pods that the API server hears of. It hears of no status
// that nobody has observed: after a reboot it knows more of a pod than an agent
// whose runtime does not answer yet. And it hears of no end that is not on the
// disk: a pod that it has as ended must not run again.
func (p *parts) reportable() []statusmanager.Entry {
	entries := p.statuses.List()
	out := make([]statusmanager.Entry, len(entries))
	for i, e := range entries {
		out[i].Pod = e.Pod
		if j := p.cluster.journaled; e.Observed && (j == nil || j.mayTell(e.Pod, e.Status)) {
			out[i].Status = e.Status
		}
	}
	return out
}

// staticGone says that no source has a static pod of that name, and that
// nothing of one is left here.
func (p *parts) staticGone(namespace, name string) bool {
	if !p.mux.Ready() {
		return false
	}
	for _, e := range p.statuses.List() {
		if pod.IsStatic(e.Pod) && e.Pod.Namespace == namespace && e.Pod.Name == name {
			return false
		}
	}
	return true
}

// servingNames are what the node's serving certificate is for.
func servingNames(nodeName string, hostIPs []string) (names []string, ips []net.IP) {
	for _, text := range hostIPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	return []string{nodeName}, ips
}
