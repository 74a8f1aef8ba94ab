package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
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
	"github.com/tinylet/tinylet/net/link"
)

// remedy has the server let nodes read what the cluster's network is made of:
// the role is kube-proxy's (system:node-proxier of the API server's own roles).
const remedy = "let nodes read it: kubectl create clusterrolebinding tinylet-network --clusterrole=system:node-proxier --group=system:nodes"

// gather is how long changes are gathered.
const gather = 100 * time.Millisecond

// seldom is how often the log and the file take what has changed: a node may
// change its addresses as often as it likes. The file has the last when a minute
// is over or the agent ends, the log by a later look.
const seldom = time.Minute

// told bounds how many faults are told.
const told = 5

// Config is what a Router needs.
type Config struct {
	API      listwatch.API
	NodeName string
	// Bridge is the name of the pods' bridge, which leads to no node.
	Bridge string
	// Open opens the kernel's routes; it is closed after each look.
	Open func() (Kernel, error)
	// Watch calls told when routes of this package may be gone, until its context
	// ends; nil is the kernel's, in the network namespace of this process.
	Watch func(ctx context.Context, told func()) error
	// Direct takes the networks that other nodes' pods are reached in by their
	// own addresses. It must not block.
	Direct func([]netip.Prefix)
	// Server answers where the API server is, as far as is known: no network of
	// pods is there. It must not block.
	Server func() []netip.Addr
	// File is where the nodes are remembered as they were known last; "" is
	// nowhere.
	File      string
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Router keeps the routes to other nodes' pods. Its methods never block but
// for Run, and may be called at once.
type Router struct {
	cfg   Config
	nodes *listwatch.Follower[peer]
	news  chan struct{} // one slot: look again

	mu      gosync.Mutex
	problem string

	// Of Run alone.
	outage   *apiclient.Outage
	backoff  apiclient.Backoff
	said     string // what the log has told, and when
	saidAt   time.Time
	stored   map[listwatch.Key]peer // what the file has, and since when
	storedAt time.Time
	unstored map[listwatch.Key]peer // what it is to have in a while; nil is what it has
	begun    bool                   // the file was read
	reached  []netip.Addr           // where the API server was known to be last
	fault    string                 // of the file, as the log has told
}

// New makes a Router; nothing is asked or changed yet.
func New(cfg Config) (*Router, error) {
	if cfg.API == nil || cfg.NodeName == "" || cfg.Open == nil || cfg.Direct == nil || cfg.Server == nil || cfg.Events == nil || cfg.Log == nil {
		return nil, errors.New("routes: an API server and where it is, the node's name, the kernel's routes, a recorder of events and a log are needed")
	}
	if cfg.Watch == nil {
		cfg.Watch = watch
	}
	r := &Router{cfg: cfg, news: make(chan struct{}, 1)}
	r.outage = apiclient.NewOutage(cfg.Log, "routes to other nodes' pods are not as they should be", "routes to other nodes' pods are as they should be again")
	var err error
	r.nodes, err = listwatch.New(listwatch.Config[peer]{
		API: cfg.API, Resource: apiclient.Nodes,
		List:   func() runtime.Object { return &v1.NodeList{} },
		Fields: fields.OneTermNotEqualSelector("metadata.name", cfg.NodeName).String(),
		Keep: func(o runtime.Object) (peer, bool) {
			if n, ok := o.(*v1.Node); !ok || n.Name == cfg.NodeName {
				return peer{}, false
			}
			return keep(o)
		},
		Same: same, Changed: r.Look, Remedy: remedy, Recovered: cfg.Recovered,
		Refused: func(text string) {
			if text != "" {
				cfg.Events.Warning(pod.Ref{}, "RoutesNotReady", text)
			}
		},
		Log: cfg.Log,
	})
	return r, err
}

// Look says that something may have changed: a link, an address, a route.
func (r *Router) Look() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Problem is what keeps the routes from being there, with what helps; "" is
// nothing.
func (r *Router) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(append(texts(r.nodes.Problem()), texts(r.problem)...), "; ")
}

func texts(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// Run keeps the routes until ctx ends, when they stay: pods do. Its error is
// ctx's cause.
func (r *Router) Run(ctx context.Context) error {
	var beside gosync.WaitGroup
	beside.Go(func() { _ = r.nodes.Run(ctx) }) // it ends with ctx alone
	beside.Go(func() { r.listen(ctx) })
	defer beside.Wait()
	defer r.finish()
	r.Look()
	for {
		if !r.rest(ctx) || !pause(ctx, gather) {
			return context.Cause(ctx)
		}
		select {
		case <-r.news: // gathered meanwhile
		default:
		}
		err := r.look()
		r.note(err)
		if err != nil && !r.retry(ctx) {
			return context.Cause(ctx)
		}
	}
}

// rest waits until there is reason to look: news, or that the file may be written
// again. It says whether ctx still lives.
func (r *Router) rest(ctx context.Context) bool {
	var due <-chan time.Time
	if r.unstored != nil {
		timer := time.NewTimer(seldom - time.Since(r.storedAt))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.news:
	case <-due:
	}
	return true
}

// finish has the file be what was known at the end.
func (r *Router) finish() {
	if r.unstored != nil {
		r.store()
	}
}

// listen looks again when somebody takes routes away. Where the kernel cannot
// tell, whoever calls Look from time to time is left.
func (r *Router) listen(ctx context.Context) {
	if err := r.cfg.Watch(ctx, r.Look); err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("routes to other nodes' pods that somebody takes away are noticed late", "error", err)
	}
}

// retry waits until there is reason to look again.
func (r *Router) retry(ctx context.Context) bool {
	timer := time.NewTimer(r.backoff.Next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-r.news:
	case <-timer.C:
	}
	r.Look()
	return true
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

// look brings the routes up to date.
func (r *Router) look() error {
	k, err := r.cfg.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	peers := r.peers()
	if peers == nil {
		// Nothing is known: what is there is believed.
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

// server is where the API server is, or was when there was a connection.
func (r *Router) server() []netip.Addr {
	if now := r.cfg.Server(); len(now) > 0 {
		r.reached = now
	}
	return r.reached
}

// peers are the other nodes: as the server tells, or, until it has, as they
// were known last; nil is unknown.
func (r *Router) peers() map[listwatch.Key]peer {
	var peers map[listwatch.Key]peer
	known := r.nodes.View(func(all map[listwatch.Key]peer) { peers = maps.Clone(all) })
	file := memory(r.cfg.File)
	if !r.begun {
		var err error
		r.stored, err = file.load()
		r.begun = true
		r.doubt(err)
	}
	if !known {
		return r.stored
	}
	r.unstored = nil
	if r.stored == nil || !maps.EqualFunc(r.stored, peers, same) {
		r.unstored = peers
		if time.Since(r.storedAt) >= seldom {
			r.store()
		}
	}
	return peers
}

// store writes the file. What fails is tried again no sooner than a change is
// taken.
func (r *Router) store() {
	r.storedAt = time.Now()
	err := memory(r.cfg.File).store(r.unstored)
	if err == nil {
		r.stored, r.unstored = r.unstored, nil
	}
	r.doubt(err)
}

// doubt says once that the file is of no use.
func (r *Router) doubt(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.fault {
		r.cfg.Log.Warn("a restart without the API server will not find other nodes' pods", "error", err)
	}
	r.fault = text
}

// say tells what has changed.
func (r *Router) say(w wanted, there []link.Route) {
	faults := strings.Join(w.faults[:min(len(w.faults), told)], "; ")
	text := fmt.Sprint(networks(there), w.beyond, faults)
	if text == r.said || time.Since(r.saidAt) < seldom {
		return
	}
	r.said, r.saidAt = text, time.Now()
	r.cfg.Log.Info("routes to other nodes' pods", "count", len(there), "beyondTheLink", w.beyond)
	if faults != "" {
		r.cfg.Log.Warn("networks of other nodes' pods that cannot be are left out", "count", len(w.faults), "faults", faults)
	}
}

// note remembers what is wrong, and says it once.
func (r *Router) note(err error) {
	text := ""
	if err != nil {
		text = "routes to other nodes' pods: " + err.Error()
	} else {
		r.backoff.Reset()
	}
	r.mu.Lock()
	news := text != "" && r.problem == ""
	r.problem = text
	r.mu.Unlock()
	r.outage.Note(err)
	if news {
		r.cfg.Events.Warning(pod.Ref{}, "RoutesNotReady", text)
	}
}
