package routes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	gosync "sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/link"
)

// remedy lets nodes read Services, EndpointSlices and Nodes. The role is
// kube-proxy's (system:node-proxier of the API server's default roles).
const remedy = "grant nodes read access: kubectl create clusterrolebinding tinylet-network --clusterrole=system:node-proxier --group=system:nodes"

// gather is how long changes are collected before a reconcile.
const gather = 100 * time.Millisecond

// writeInterval is the minimum interval of writes to the log and to the file, because a
// node may change its addresses at any rate. The last state is written to the file when
// the interval has passed or Run ends, and is logged by a later reconcile.
const writeInterval = time.Minute

// maxLoggedFaults bounds the number of logged faults.
const maxLoggedFaults = 5

// Config configures a Router.
type Config struct {
	API      apiclient.API
	NodeName string
	// Bridge is the name of the pods' bridge. No node is on it.
	Bridge string
	// Open opens the kernel's routes. Each reconcile opens and closes them.
	Open func() (Kernel, error)
	// Direct is called with the networks in which the pods of other nodes are
	// reached without masquerading. It must not block.
	Direct func([]netip.Prefix)
	// Server returns the known addresses of the API server. No pod network contains
	// them. It must not block.
	Server func() []netip.Addr
	// File is the path of a file with the last known nodes.
	File      string
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Router maintains the routes to other nodes' pods. Its methods do not block,
// except for Run, and are safe for concurrent use.
type Router struct {
	cfg     Config
	nodes   *listwatch.Reflector[peer]
	trigger wait.Wakeup // to reconcile
	watch   func(ctx context.Context, notify func()) error

	mu      gosync.Mutex
	problem string

	// Only for Run.
	outage     *apiclient.Outage
	backoff    wait.Backoff
	logged     string // the logged state
	saidAt     time.Time
	stored     map[listwatch.Key]peer // content of the file
	storedAt   time.Time              // last attempt to write it
	pending    map[listwatch.Key]peer // pending content of the file; nil if there is none
	begun      bool                   // the file was read
	lastServer []netip.Addr           // last known addresses of the API server
	fault      string                 // logged error of the file
}

// New returns a Router. It sends no request and changes nothing.
func New(cfg Config) (*Router, error) {
	r := &Router{cfg: cfg, trigger: wait.NewWakeup(), watch: watch}
	r.outage = apiclient.NewOutage(cfg.Log, "cannot update routes to other nodes' pods", "updated routes to other nodes' pods again")
	var err error
	r.nodes, err = listwatch.New(listwatch.Config[peer]{
		API: cfg.API, Resource: apiclient.Nodes,
		List:   func() runtime.Object { return &v1.NodeList{} },
		Fields: fields.OneTermNotEqualSelector("metadata.name", cfg.NodeName).String(),
		Keep:   func(o runtime.Object) (peer, bool) { return keep(o, cfg.NodeName) },
		Same:   same, Changed: r.Trigger, Remedy: remedy, Recovered: cfg.Recovered,
		OnForbidden: func(text string) { cfg.Events.Warning(pod.Ref{}, "RoutesNotReady", text) },
		Log:         cfg.Log,
	})
	return r, err
}

// Trigger triggers a reconcile, because a link, an address or a route may have
// changed.
func (r *Router) Trigger() { r.trigger.Set() }

// Problem returns why the routes are not up to date, with a remedy. It returns ""
// if there is no problem.
func (r *Router) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []string{r.nodes.Problem(), r.problem}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// Run maintains the routes until ctx ends. It leaves the routes, because the pods
// continue. It returns the cause of ctx.
func (r *Router) Run(ctx context.Context) error {
	var beside gosync.WaitGroup
	beside.Go(func() { _ = r.nodes.Run(ctx) }) // the only error is ctx's
	beside.Go(func() {
		// While the watch fails, a deleted route is restored by the next reconcile for
		// another reason.
		wait.Watch(ctx, r.watch, r.Trigger, gather, func(err error) {
			r.cfg.Log.Warn("cannot watch routes to other nodes' pods", "error", err)
		})
	})
	defer beside.Wait()
	defer func() {
		if r.pending != nil {
			r.store()
		}
	}()
	r.Trigger()
	for {
		fileDue := time.Duration(math.MaxInt64)
		if r.pending != nil {
			fileDue = writeInterval - time.Since(r.storedAt)
		}
		if !r.trigger.Wait(ctx, fileDue) || !wait.Pause(ctx, gather) {
			return context.Cause(ctx)
		}
		select {
		case <-r.trigger: // collected meanwhile
		default:
		}
		err := r.reconcile()
		r.note(err)
		if err != nil {
			if !r.trigger.Wait(ctx, r.backoff.Next()) {
				return context.Cause(ctx)
			}
			r.Trigger()
		}
	}
}

// reconcile reconciles the routes.
func (r *Router) reconcile() error {
	k, err := r.cfg.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	peers := r.peers()
	if peers == nil {
		// No nodes are known: keep the existing routes.
		have, err := k.Routes(link.RouteFilter{Protocol: Protocol})
		if err == nil {
			r.cfg.Direct(networks(have))
		}
		return err
	}
	h, err := read(k, r.cfg.Bridge)
	if err != nil {
		return err
	}
	h.server = r.server()
	w := plan(h, peers)
	there, faults, err := sync(k, h.routes, w.routes)
	w.faults = append(w.faults, faults...)
	r.cfg.Direct(networks(there))
	r.say(w, there)
	return err
}

// server returns the last known addresses of the API server.
func (r *Router) server() []netip.Addr {
	if now := r.cfg.Server(); len(now) > 0 {
		r.lastServer = now
	}
	return r.lastServer
}

// peers returns the other nodes from the API server, or, before the first list,
// those of the file; nil is unknown.
func (r *Router) peers() map[listwatch.Key]peer {
	var peers map[listwatch.Key]peer
	known := r.nodes.View(func(all map[listwatch.Key]peer) { peers = maps.Clone(all) })
	if !r.begun {
		var err error
		r.stored, err = nodeCache(r.cfg.File).load()
		r.begun = true
		r.logCacheError(err)
	}
	if !known {
		return r.stored
	}
	r.pending = nil
	if r.stored == nil || !maps.EqualFunc(r.stored, peers, same) {
		r.pending = peers
		if time.Since(r.storedAt) >= writeInterval {
			r.store()
		}
	}
	return peers
}

// store writes the file. A failed write is retried after writeInterval.
func (r *Router) store() {
	r.storedAt = time.Now()
	err := nodeCache(r.cfg.File).store(r.pending)
	if err == nil {
		r.stored, r.pending = r.pending, nil
	}
	r.logCacheError(err)
}

// logCacheError logs an error of the file once.
func (r *Router) logCacheError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.fault {
		r.cfg.Log.Warn("cannot use node cache", "error", err)
	}
	r.fault = text
}

// say logs what has changed.
func (r *Router) say(w plannedRoutes, there []link.Route) {
	faults := strings.Join(w.faults[:min(len(w.faults), maxLoggedFaults)], "; ")
	text := fmt.Sprint(networks(there), w.offLink, faults)
	if text == r.logged || time.Since(r.saidAt) < writeInterval {
		return
	}
	r.logged, r.saidAt = text, time.Now()
	r.cfg.Log.Info("updated routes to other nodes' pods", "count", len(there), "nodesNotOnLink", w.offLink)
	if faults != "" {
		r.cfg.Log.Warn("rejected pod networks of other nodes", "count", len(w.faults), "reasons", faults)
	}
}

// note stores the problem, and logs it and records an event when it begins.
func (r *Router) note(err error) {
	text := ""
	if err != nil {
		text = "update routes to other nodes' pods: " + err.Error()
	} else {
		r.backoff.Reset()
	}
	r.mu.Lock()
	news := text != "" && r.problem == ""
	r.problem = text
	r.mu.Unlock()
	r.outage.Record(err)
	if news {
		r.cfg.Events.Warning(pod.Ref{}, "RoutesNotReady", text)
	}
}
