package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
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
	"github.com/tinylet/tinylet/net/nft"
)

// remedy has the server let nodes read what the cluster's network is made of:
// the role is kube-proxy's (system:node-proxier of the API server's own roles).
const remedy = "let nodes read it: kubectl create clusterrolebinding tinylet-network --clusterrole=system:node-proxier --group=system:nodes"

// gather is how long changes are gathered.
const gather = 100 * time.Millisecond

// leisure is how many times as long as the last change took nothing is changed
// after it: in a large cluster there is always something.
const leisure = 4

// What is left out at the server already: the Services that others carry, and
// the slices of those without an address.
const (
	ofServices = "!" + proxyName
	ofSlices   = "!" + v1.IsHeadlessService
)

// Table is where services are kept, as *nft.Table does it. It is for one
// goroutine.
type Table interface {
	SyncServices(all []nft.Service, apart nft.Apart) error
	Close() error
}

// Config is what a Proxy needs.
type Config struct {
	API      listwatch.API
	NodeName string
	// Bridge is the name of the pods' bridge.
	Bridge string
	// Server answers where the API server is, as far as is known, and Host which
	// addresses this machine has and which its routers have: no Service has those
	// of others, nor Ports (of TCP, which the agent listens on) of its own. They
	// must not wait for anybody but the kernel, and may be nil.
	Server func() []netip.Addr
	Host   func() (own, routers []netip.Addr)
	Ports  []uint16
	// Open opens the table, which stays open.
	Open      func() (Table, error)
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Proxy keeps the addresses of Services. Its methods never block but for Run,
// and may be called at once.
type Proxy struct {
	cfg      Config
	services *listwatch.Follower[service]
	slices   *listwatch.Follower[slice]
	ready    chan struct{} // one slot: the table is there, look again
	news     chan struct{} // one slot: something has changed

	mu      sync.Mutex
	problem string

	// Of Run alone.
	table   Table
	outage  *apiclient.Outage
	backoff apiclient.Backoff
	count   int            // as the log has told
	claims  map[claim]bool // as was told
}

// New makes a Proxy; nothing is asked or changed yet.
func New(cfg Config) (*Proxy, error) {
	if cfg.API == nil || cfg.NodeName == "" || cfg.Open == nil || cfg.Events == nil || cfg.Log == nil {
		return nil, errors.New("services: an API server, the node's name, a table, a recorder of events and a log are needed")
	}
	p := &Proxy{cfg: cfg, ready: make(chan struct{}, 1), news: make(chan struct{}, 1), count: -1}
	p.outage = apiclient.NewOutage(cfg.Log, "the addresses of services are not as they should be", "the addresses of services are as they should be again")
	var err error
	p.services, err = listwatch.New(listwatch.Config[service]{
		API: cfg.API, Resource: apiclient.Services, Labels: ofServices,
		List: func() runtime.Object { return &v1.ServiceList{} },
		Keep: keepService, Same: sameService, Changed: p.changed,
		Remedy: remedy, Refused: p.refused, Recovered: cfg.Recovered, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	p.slices, err = listwatch.New(listwatch.Config[slice]{
		API: cfg.API, Resource: apiclient.EndpointSlices, Labels: ofSlices,
		List: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		Keep: func(o runtime.Object) (slice, bool) { return keepSlice(o, cfg.NodeName) },
		Same: sameSlice, Changed: p.changed,
		Remedy: remedy, Refused: p.refused, Recovered: cfg.Recovered, Log: cfg.Log,
	})
	return p, err
}

// Look says that the table is there, and may have been made anew.
func (p *Proxy) Look() {
	nudge(p.ready)
	nudge(p.news)
}

// Moved says that the addresses of this machine or of the API server may be
// others.
func (p *Proxy) Moved() { nudge(p.news) }

func (p *Proxy) changed() { nudge(p.news) }

func nudge(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

func (p *Proxy) refused(text string) {
	if text != "" {
		p.cfg.Events.Warning(pod.Ref{}, "ServicesNotReady", text)
	}
}

// Problem is what keeps services from their addresses, with what helps; "" is
// nothing.
func (p *Proxy) Problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	// That both are refused has one remedy.
	for _, text := range []string{cmp.Or(p.services.Problem(), p.slices.Problem()), p.problem} {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// Run waits until there is a table (Look), and keeps the addresses of services
// in it until ctx ends, when they stay: pods do. Its error is ctx's cause.
func (p *Proxy) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ready:
	}
	var followers sync.WaitGroup
	followers.Go(func() { _ = p.services.Run(ctx) }) // they end with ctx alone
	followers.Go(func() { _ = p.slices.Run(ctx) })
	defer followers.Wait()
	defer p.close()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.news:
		}
		wait := p.turn(ctx)
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// turn makes what has changed so, and says how long to wait after it.
func (p *Proxy) turn(ctx context.Context) time.Duration {
	if !pause(ctx, gather) {
		return 0
	}
	select {
	case <-p.news: // gathered meanwhile
	default:
	}
	began := time.Now()
	err := p.sync()
	if errors.Is(err, nft.ErrNoTable) {
		return 0 // who makes it calls Look
	}
	p.note(err)
	if err != nil {
		nudge(p.news)
		return p.backoff.Next()
	}
	return leisure * time.Since(began)
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sync brings the table up to date. Until the server has told of all Services
// and endpoints, it stays as it is: connections go on.
func (p *Proxy) sync() error {
	var (
		all    []nft.Service
		claims []claim
		none   nft.Apart
		known  = false
		apart  = p.apart()
	)
	p.services.View(func(services map[listwatch.Key]service) {
		none = apart.table(services)
		known = p.slices.View(func(slices map[listwatch.Key]slice) { all, claims = convert(services, slices, p.cfg.Bridge, apart) })
	})
	if !known {
		return nil
	}
	p.tell(claims)
	if p.table == nil {
		table, err := p.cfg.Open()
		if err != nil {
			return err
		}
		p.table = table
	}
	err := p.table.SyncServices(all, none)
	switch {
	case err == nil && p.count != len(all):
		p.count = len(all)
		p.cfg.Log.Debug("ports of services have their addresses", "count", len(all))
	case err != nil && !errors.Is(err, nft.ErrNoTable):
		p.close() // it is opened anew
	}
	return err
}

// apart is what no Service may have, as of now.
func (p *Proxy) apart() apart {
	a := apart{ports: p.cfg.Ports}
	if p.cfg.Server != nil {
		a.servers = p.cfg.Server()
	}
	if p.cfg.Host != nil {
		a.own, a.routers = p.cfg.Host()
	}
	return a
}

// tell says once what Services claim and do not get.
func (p *Proxy) tell(claims []claim) {
	still := make(map[claim]bool, min(len(claims), maxClaims))
	for _, c := range claims {
		if len(still) == maxClaims {
			break
		}
		if still[c] = true; !p.claims[c] {
			p.cfg.Log.Warn("a Service claims what is the node's", "namespace", c.key.Namespace, "service", c.key.Name, "claim", c.why)
			p.cfg.Events.Warning(pod.Ref{}, "ServiceAddressLeftOut", c.String())
		}
	}
	p.claims = still
}

func (p *Proxy) close() {
	if p.table != nil {
		_ = p.table.Close() // what it holds is of no more use
		p.table = nil
	}
}

// note remembers what is wrong, and says it once.
func (p *Proxy) note(err error) {
	text := ""
	if err != nil {
		text = "addresses of services: " + err.Error()
	} else {
		p.backoff.Reset()
	}
	p.mu.Lock()
	news := text != "" && p.problem == ""
	p.problem = text
	p.mu.Unlock()
	p.outage.Note(err)
	if news {
		p.cfg.Events.Warning(pod.Ref{}, "ServicesNotReady", text)
	}
}
