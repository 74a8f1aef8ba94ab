package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/nft"
)

// remedy lets nodes read Services, EndpointSlices and Nodes. The role is
// kube-proxy's (system:node-proxier of the API server's default roles).
const remedy = "grant nodes read access: kubectl create clusterrolebinding tinylet-network --clusterrole=system:node-proxier --group=system:nodes"

// batchDelay is how long changes are collected before an update.
const batchDelay = 100 * time.Millisecond

// pauseFactor limits the update rate: after an update, nothing is updated for
// pauseFactor times its duration. In a large cluster, changes never stop.
const pauseFactor = 4

// The server filters out the Services of other proxies, and the EndpointSlices of
// headless Services.
const (
	ofServices = "!" + proxyName
	ofSlices   = "!" + v1.IsHeadlessService
)

// Table holds the Services. *nft.Table implements it. It is for one goroutine.
type Table interface {
	SyncServices(all []nft.Service, apart nft.Apart) error
	Close() error
}

// Config configures a Proxy.
type Config struct {
	API      apiclient.API
	NodeName string
	// Bridge is the name of the pods' bridge.
	Bridge string
	// Server returns the known addresses of the API server. Host returns the
	// addresses of this machine and those of its routers. No Service gets the API
	// server's or a router's address, nor one of Ports (the TCP ports that the
	// agent listens on) on an address of this machine. Server and Host may block
	// only on the kernel. After an error of Host, the table does not change until a
	// retry.
	Server func() []netip.Addr
	Host   func() (own, routers []netip.Addr, err error)
	Ports  []uint16
	// Open opens the table, which the Proxy closes.
	Open      func() (Table, error)
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Proxy implements Services on this node. Its methods do not block, except for Run,
// and are safe for concurrent use.
type Proxy struct {
	cfg      Config
	services *listwatch.Reflector[service]
	slices   *listwatch.Reflector[slice]
	ready    wait.Wakeup // the table was created; only the start of Run receives it
	news     wait.Wakeup // to update the table

	mu      sync.Mutex
	problem string

	// Only for Run.
	table      Table
	outage     *apiclient.Outage
	backoff    wait.Backoff
	count      int                // the logged count
	rejections map[rejection]bool // the reported ones
}

// New returns a Proxy. It sends no request and changes nothing.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{cfg: cfg, ready: wait.NewWakeup(), news: wait.NewWakeup(), count: -1}
	p.outage = apiclient.NewOutage(cfg.Log, "cannot update Service rules, retry", "updated Service rules again")
	var err error
	p.services, err = listwatch.New(listwatch.Config[service]{
		API: cfg.API, Resource: apiclient.Services, Labels: ofServices,
		List: func() runtime.Object { return &v1.ServiceList{} },
		Keep: keepService, Same: sameService, Changed: p.news.Set,
		Remedy: remedy, OnForbidden: p.refused, Recovered: cfg.Recovered, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	p.slices, err = listwatch.New(listwatch.Config[slice]{
		API: cfg.API, Resource: apiclient.EndpointSlices, Labels: ofSlices,
		List: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		Keep: func(o runtime.Object) (slice, bool) { return keepSlice(o, cfg.NodeName) },
		Same: sameSlice, Changed: p.news.Set,
		Remedy: remedy, OnForbidden: p.refused, Recovered: cfg.Recovered, Log: cfg.Log,
	})
	return p, err
}

// TableCreated notifies the proxy that the table exists, and may have been created again.
// The proxy then compares its rules with the table.
func (p *Proxy) TableCreated() {
	p.ready.Set()
	p.news.Set()
}

// AddressesChanged notifies the proxy that the addresses of this machine or of the API server
// may have changed.
func (p *Proxy) AddressesChanged() { p.news.Set() }

func (p *Proxy) refused(text string) { p.cfg.Events.Warning(pod.Ref{}, "ServicesNotReady", text) }

// Problem returns why Services do not work, with a remedy. It returns "" if there
// is no problem.
func (p *Proxy) Problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	// If both requests are forbidden, one remedy is enough.
	all := []string{cmp.Or(p.services.Problem(), p.slices.Problem()), p.problem}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// Run waits until the table exists (TableCreated), and keeps the Services in it up to date
// until ctx ends. It leaves the rules, because the pods continue. It returns the cause of
// ctx.
func (p *Proxy) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ready:
	}
	var followers sync.WaitGroup
	followers.Go(func() { _ = p.services.Run(ctx) }) // the only error is ctx's
	followers.Go(func() { _ = p.slices.Run(ctx) })
	defer followers.Wait()
	defer p.close()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.news:
		}
		if !wait.Pause(ctx, p.syncBatch(ctx)) {
			return context.Cause(ctx)
		}
	}
}

// syncBatch collects changes and updates the table. It returns how long to wait
// afterwards. Without a table it reports no problem.
func (p *Proxy) syncBatch(ctx context.Context) time.Duration {
	if !wait.Pause(ctx, batchDelay) {
		return 0
	}
	select {
	case <-p.news: // collected meanwhile
	default:
	}
	began := time.Now()
	err := p.sync()
	if errors.Is(err, nft.ErrNoTable) {
		return 0 // TableCreated is called after the table's creation
	}
	p.note(err)
	if err != nil {
		p.news.Set()
		return p.backoff.Next()
	}
	return pauseFactor * time.Since(began)
}

// sync updates the table. Until the server has listed all Services and
// EndpointSlices, the table does not change, so that connections continue.
func (p *Proxy) sync() error {
	var (
		all    []nft.Service
		claims []rejection
		none   nft.Apart
		known  = false
	)
	apart := apart{servers: p.cfg.Server(), ports: p.cfg.Ports}
	var err error
	if apart.own, apart.routers, err = p.cfg.Host(); err != nil {
		return fmt.Errorf("read addresses of this machine: %w", err)
	}
	p.services.View(func(services map[listwatch.Key]service) {
		none = apart.table(services)
		known = p.slices.View(func(ends map[listwatch.Key]slice) { all, claims = convert(services, ends, p.cfg.Bridge, apart) })
	})
	if !known {
		return nil
	}
	p.reportRejections(claims)
	if p.table == nil {
		table, err := p.cfg.Open()
		if err != nil {
			return err
		}
		p.table = table
	}
	err = p.table.SyncServices(all, none)
	switch {
	case err == nil && p.count != len(all):
		p.count = len(all)
		p.cfg.Log.Debug("updated Service rules", "count", len(all))
	case err != nil && !errors.Is(err, nft.ErrNoTable):
		p.close() // the next update opens it again
	}
	return err
}

// reportRejections logs each of the first maxRejections and records an event for it, once
// while it lasts.
func (p *Proxy) reportRejections(claims []rejection) {
	still := make(map[rejection]bool, min(len(claims), maxRejections))
	for _, c := range claims {
		if len(still) == maxRejections {
			break
		}
		if still[c] = true; !p.rejections[c] {
			p.cfg.Log.Warn("rejected address of Service", "namespace", c.key.Namespace, "service", c.key.Name, "address", c.why)
			p.cfg.Events.Warning(pod.Ref{}, "ServiceAddressLeftOut", c.String())
		}
	}
	p.rejections = still
}

func (p *Proxy) close() {
	if p.table != nil {
		_ = p.table.Close() // an error has no consequence
		p.table = nil
	}
}

// note stores the problem, and logs it and records an event when it begins.
func (p *Proxy) note(err error) {
	text := ""
	if err != nil {
		text = "update Service rules: " + err.Error()
	} else {
		p.backoff.Reset()
	}
	p.mu.Lock()
	news := text != "" && p.problem == ""
	p.problem = text
	p.mu.Unlock()
	p.outage.Record(err)
	if news {
		p.cfg.Events.Warning(pod.Ref{}, "ServicesNotReady", text)
	}
}
