package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/eventsink"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/node/clock"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source/apiobjects"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// cluster is the connection to the API server, and what is read from it.
type cluster struct {
	core     *core
	pace     config.UpdateIntervals
	clock    *clock.Clock
	meter    apiclient.Meter // of all clients, including those that only enrol
	identity *identity.Identity
	api      apiclient.Requester
	object   *registration.Object
	objects  *apiobjects.Objects
	events   *eventsink.Sink
	stored   *offline.Journal
	journal  *offline.Store // nil if it cannot be used
	reader   objects.Reader
	// completion reads what running pods need and the journal lacks; nil without a journal.
	completion func(context.Context) error
	services   func(ctx context.Context, namespace string) ([]*v1.Service, error)

	// assigned means that the API server has listed the node's pods: then the objects that
	// they refer to may be requested.
	assigned atomic.Bool
}

// newCluster returns nil on a standalone node.
func newCluster(core *core) (_ *cluster, err error) {
	cfg, node, log := core.cfg, core.node, core.log
	if cfg.Kubeconfig == "" {
		return nil, nil
	}
	c := &cluster{core: core, pace: cfg.UpdateIntervals(), clock: clock.New(version.BuildTime(), log)}
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
		HostIPs:             node.HostIPs,
		Clock:               c.clock,
		NewClient: func(config apiclient.Config) (*apiclient.Client, error) {
			config.Meter, config.PingAfter = &c.meter, c.pace.PingAfter
			return apiclient.New(config)
		},
		Events:    core.events,
		Log:       log,
		UserAgent: "tinylet/" + version.Release(),
	})
	if err != nil {
		return nil, err
	}
	c.api = apiclient.Deferred(c.identity.Client)
	c.object = registration.NewObject(c.api, cfg.NodeName, func(n *v1.Node) {
		node.SetNode(n)
		core.networkInputs.Assigned(n.Spec.PodCIDRs)
		core.podStatuses.Set() // mirror pods have the UID of the Node
	})
	c.objects, err = apiobjects.New(apiobjects.Config{API: c.api, Log: log, Changed: core.objectChanged, Recovered: c.identity.Recovered})
	if err != nil {
		return nil, err
	}
	c.reader, c.services = c.objects, c.objects.Services
	if c.stored, err = c.openJournal(); err != nil {
		return nil, err
	}
	if c.journal = c.stored.Store; c.journal != nil {
		c.clock.RaiseLowerBound(c.journal.Newest())
		reader := c.journal.Reader(c.objects)
		c.reader, c.services = reader, reader.Services
		c.completion = func(ctx context.Context) error { return reader.Run(ctx, c.identity.Recovered) }
	}
	c.events, err = eventsink.New(eventsink.Config{
		API: c.api, Watch: core.events.Watch, Ready: c.clock.Ready, NodeName: cfg.NodeName,
		Coalesce: c.pace.EventInterval, QPS: float32(*cfg.Kubelet.EventRecordQPS), Burst: int(cfg.Kubelet.EventBurst),
		Recovered: c.identity.Recovered, Log: log,
	})
	return c, err
}

// openJournal opens the journal of the API server's pods. A journal that another process has
// open belongs to another agent, with another socket.
func (c *cluster) openJournal() (*offline.Journal, error) {
	cfg := c.core.cfg
	setup := offline.SetupConfig{
		Dir: cfg.Paths.Journal(), Tinylet: &cfg.Tinylet, Contacted: c.identity.Contacted, MayRead: c.assigned.Load,
		Started: func(uid types.UID) *metav1.Time {
			if _, s, ok := c.core.statuses.Get(uid); ok {
				return s.StartTime
			}
			return nil
		},
		Events: c.core.events, Log: c.core.log,
	}
	j, err := offline.Setup(setup)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("%w: it has the journal in %q open, and its socket is not %q; stop it first (two agents would start every pod twice)",
			local.ErrOtherAgent, setup.Dir, cfg.Tinylet.SocketPath)
	}
	return j, err
}

// checkAddresses handles a change of the node's addresses, which its serving certificate and
// each pod's status contain.
func (c *cluster) checkAddresses() {
	if c.core.node.AddressesChanged() {
		c.identity.AddressesChanged()
		c.core.wakeAll()
	}
}

// uplinkChanged is called when the node's addresses may have changed.
func (c *cluster) uplinkChanged() {
	c.core.node.ForgetAddresses()
	c.checkAddresses()
	if client := c.identity.Current(); client != nil {
		client.CloseStaleConnections()
	}
	c.core.nodeStatus.Set()
}

// onceJoined returns a task that calls do once there is a client of the API server, whose
// addresses are then known.
func (c *cluster) onceJoined(name string, do func()) health.Task {
	return health.Task{Name: name, Once: true, Run: func(ctx context.Context) error {
		_, err := c.identity.Client(ctx)
		if err == nil {
			do()
		}
		return err
	}}
}
