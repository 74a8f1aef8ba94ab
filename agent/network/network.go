package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// young is how long a pod's network is left alone: the runtime lists a
// container only when its network is there, which takes a while on a slow
// board.
const young = 10 * time.Minute

// Pods is what all pods of the node share: *podnet.Network has it.
type Pods interface {
	// Ensure makes it, or mends what somebody has changed.
	Ensure() error
	// Collect takes away what belongs to pods that do not live.
	Collect(lives func(podnet.Entry) bool) (gone int, err error)
	// Uses says whether a pod has an address of a network.
	Uses(network netip.Prefix) (bool, error)
	Close() error
}

// Config is what a Network needs.
type Config struct {
	Settings config.Network
	// Networks are those of the node's pods as configured; nil leaves them to
	// the API server.
	Networks []netip.Prefix
	// World are the node's own addresses on the way to the world, and the
	// routers there: pods' networks must not have them. It may be nil.
	World func() ([]netip.Addr, error)
	// Ports are those of TCP that the agent listens on: no pod has them of the
	// host.
	Ports []uint16
	// Binary is what the runtime is to call: the path of this program.
	Binary string
	// Info is what the runtime says of its configuration: where it looks for
	// plugins and network configurations, unless Settings say so, and whether it
	// calls the plugin loopback. nil leaves the usual directories.
	Info func(ctx context.Context) (container.Info, error)
	// Pods opens the pods' network of a configuration. It is closed and opened
	// anew when that changes.
	Pods func(cni.Config) (Pods, error)
	// Dismantle takes away the rules and a bridge of such networks, if tinylet
	// has made them. It may be nil.
	Dismantle func(bridge string) error
	// Containers are those of the sandboxes that the runtime has; ok is false
	// while it does not tell.
	Containers func(ctx context.Context) (ids []string, ok bool)
	// Refresh has the API server tell of the node again (Assigned). nil on a
	// board alone.
	Refresh func(ctx context.Context) error
	// Watches call told when a part of what the host has may have changed,
	// until their context ends. Moved is called for each, too: the node's
	// addresses may be others. Both may be nil.
	Watches []func(ctx context.Context, told func()) error
	Moved   func()
	// Ensured is called after each look that has found or made what pods share
	// as it should be, if there is such. It may be nil and must not block.
	Ensured func()
	// Problems are what else keeps pods from the network, "" for nothing.
	Problems []func() string
	Events   *event.Recorder
	Log      *slog.Logger
}

// Network keeps the pods' network as it should be. Its methods never block
// but for Run.
type Network struct {
	cfg   Config
	news  chan struct{} // one slot: look again
	files watcher       // nil where files are not watched

	mu       sync.Mutex
	watched  []string       // the folders of files that are kept in place
	written  []byte         // what the file is to say
	assigned []netip.Prefix // by the API server
	doubt    error          // what the API server has told, and that is no use
	direct   []netip.Prefix
	directed bool   // direct was told
	problem  string // what keeps pods from their network; "" is nothing

	// Of Run alone.
	folder  folder // of network configurations
	places  places
	kept    bool       // the files there are kept in place
	was     cni.Config // what the file said when it was last there
	opened  cni.Config // what pods is of
	pods    Pods
	said    string    // the mode that the log has told
	wrong   string    // which problem the log has told
	asking  time.Time // since when the API server has told no networks
	world   []netip.Addr
	gone    bool // nothing is left of a mode of before
	backoff apiclient.Backoff
	late    []byte    // what the file is to say in a while
	spared  time.Time // when it was last written for Direct alone

	unwatched string // the error that the log has told
}

// New makes a Network; nothing is read or changed yet.
func New(cfg Config) (*Network, error) {
	if cfg.Pods == nil || cfg.Log == nil || cfg.Events == nil || cfg.Containers == nil {
		return nil, errors.New("network: the pods' network, the runtime's containers, a recorder of events and a log are needed")
	}
	return &Network{
		cfg: cfg, news: make(chan struct{}, 1), files: &inotify{},
		backoff: apiclient.Backoff{Max: slowLook},
	}, nil
}

// Look says that something may have changed: a link, a route, a rule.
func (n *Network) Look() {
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// Direct takes the networks of other nodes' pods that are reached without this
// node's address. In the mode routed those of the last time are taken until it
// is called. The rules have them at once, the file within a minute.
func (n *Network) Direct(networks []netip.Prefix) {
	n.mu.Lock()
	changed := !n.directed || !slices.Equal(networks, n.direct)
	n.direct, n.directed = networks, true
	n.mu.Unlock()
	if changed {
		n.Look()
	}
}

// Problem is what keeps pods from having a network, with what helps; "" is
// nothing.
func (n *Network) Problem() string {
	n.mu.Lock()
	all := []string{n.problem}
	n.mu.Unlock()
	for _, problem := range n.cfg.Problems {
		all = append(all, problem())
	}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// Run keeps everything up to date until ctx ends; its error is ctx's cause.
func (n *Network) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, watch := range n.cfg.Watches {
		beside.Go(func() { n.watch(ctx, watch, n.moved) })
	}
	if n.files != nil {
		beside.Go(func() {
			n.watch(ctx, func(ctx context.Context, _ func()) error { return n.watchFiles(ctx) }, n.Look)
		})
	}
	defer n.close()
	defer n.finish()
	for first := true; ; first = false {
		began := time.Now()
		err := n.look(ctx)
		if ctx.Err() == nil {
			n.tell(err)
		}
		fresh := n.place()
		if !n.rest(ctx, n.wait(err, first || fresh)) || !pause(ctx, between-time.Since(began)) {
			return context.Cause(ctx)
		}
	}
}

func (n *Network) close() {
	if n.pods != nil {
		_ = n.pods.Close() // what it holds is read anew by the next
		n.pods = nil
	}
}

// joining is how long it may take until a new node is registered and a
// controller has assigned it networks, and until a runtime that starts beside
// the agent answers. Nobody has to be alarmed before.
const joining = 15 * time.Second

// joins says whether err is what every node meets as it joins, and no sooner
// than that a fault.
func (n *Network) joins(err error) bool {
	if !errors.Is(err, errUnanswered) && !errors.Is(err, errUnassigned) && !errors.Is(err, container.ErrUnavailable) {
		n.asking = time.Time{}
		return false
	}
	if n.asking.IsZero() {
		n.asking = time.Now()
	}
	return time.Since(n.asking) < joining
}

// tell remembers what is wrong, and says it once.
func (n *Network) tell(err error) {
	text, wrong := "", ""
	if err != nil {
		text, wrong = err.Error(), err.Error()
	}
	for _, kind := range []error{errUnanswered, container.ErrUnavailable} {
		if errors.Is(err, kind) {
			wrong = kind.Error() // how it fails changes from try to try
		}
	}
	n.mu.Lock()
	n.problem = text
	n.mu.Unlock()
	if n.joins(err) || wrong == n.wrong {
		return
	}
	n.wrong = wrong
	if err == nil {
		n.cfg.Log.Info("the pods' network is as it should be again")
		return
	}
	n.cfg.Log.Warn("the pods' network is not as it should be", "error", err)
	n.cfg.Events.Warning(pod.Ref{}, "NetworkNotReady", text)
}

// look brings everything up to date.
func (n *Network) look(ctx context.Context) error {
	if err := n.locate(ctx); err != nil {
		return err
	}
	if err := n.provide(); err != nil {
		return err
	}
	names, err := n.folder.names()
	if err != nil {
		return err
	}
	data, err := n.folder.read()
	if err != nil {
		return err
	}
	was, ours := recall(data)
	if data == nil {
		was = n.was // somebody has deleted the file
	}
	n.was = was
	others := foreign(names, func() bool { return ours })
	networks := n.folder.networks(others)
	mode := Decide(n.cfg.Settings.Mode, networks)
	n.announce(mode, others, networks)
	n.kept = mode != config.NetworkCNI
	switch mode {
	case config.NetworkCNI:
		if ours {
			_, err = n.folder.remove()
			n.was = cni.Config{}
		}
		n.late = nil
		n.leave(ctx, was)
		return err
	case config.NetworkHost:
		err := n.configure(refusing(n.cfg.Settings), was, data)
		n.leave(ctx, was)
		return err
	}
	n.gone = false
	own, doubt := n.networks(ctx, was)
	if len(own) == 0 {
		return doubt
	}
	wanted := wanted(n.cfg.Settings, own, n.directly(was))
	wanted.Reserved = n.cfg.Ports
	if err := n.share(ctx, &wanted, was); err != nil {
		return err
	}
	if n.cfg.Ensured != nil {
		n.cfg.Ensured()
	}
	if err := n.configure(wanted, was, data); err != nil {
		return err
	}
	return doubt
}

// directly are the networks of other nodes' pods that are reached without this
// node's address.
func (n *Network) directly(was cni.Config) []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cfg.Settings.Mode == config.NetworkRouted && !n.directed {
		return was.Direct
	}
	return n.direct
}

// announce says which mode it is, once. Others' configurations are in the way
// of a network that tinylet makes, and of no other; those with the loopback
// alone, which are no networks, as much: the runtime takes what comes first.
func (n *Network) announce(mode string, others, networks []string) {
	first := shadowing(others)
	if mode == config.NetworkCNI || mode == config.NetworkHost {
		first = ""
	}
	say := mode + " " + first
	if say == n.said {
		return
	}
	n.said = say
	file := filepath.Join(n.folder.path, first)
	switch {
	case first == "":
		n.cfg.Log.Info("how pods get their network", "mode", mode, "others", others)
	case slices.Contains(networks, first):
		n.cfg.Log.Warn("the container runtime takes a network configuration that is not tinylet's, since its name comes first: remove it, or set network.mode of TinyletConfiguration to cni",
			"mode", mode, "file", file)
	default:
		n.cfg.Log.Warn("the container runtime takes a network configuration that is not tinylet's, since its name comes first, and which gives pods the loopback alone: remove it, or give it a name that comes behind "+FileName,
			"mode", mode, "file", file)
	}
}

// share makes what all pods share, and takes away what belongs to none.
// Networks of the last time in which pods still live are kept.
func (n *Network) share(ctx context.Context, wanted *cni.Config, was cni.Config) error {
	if err := n.bridge(wanted, was); err != nil {
		return err
	}
	wanted.Kept = former(was, wanted.Ranges)
	if len(wanted.Kept) > 0 {
		if err := n.open(*wanted); err != nil {
			return err
		}
		used := wanted.Kept[:0:0]
		for _, r := range wanted.Kept {
			uses, err := n.pods.Uses(r.Subnet)
			if err != nil {
				return err
			}
			if uses {
				used = append(used, r)
			}
		}
		wanted.Kept = used
	}
	if err := n.open(*wanted); err != nil {
		return err
	}
	if err := n.pods.Ensure(); errors.As(err, new(*nft.Unsupported)) {
		return fmt.Errorf("pods with a network of their own cannot start, pods with hostNetwork can: %w", err)
	} else if err != nil {
		return err
	}
	_, err := n.collect(ctx)
	return err
}

// open has pods be of a configuration.
func (n *Network) open(c cni.Config) error {
	if n.pods != nil && same(n.opened, c) {
		return nil
	}
	n.close()
	pods, err := n.cfg.Pods(c)
	if err != nil {
		return err
	}
	n.pods, n.opened = pods, c
	return nil
}

// collect takes away what belongs to no container, and says whether no pod has
// a network then. While the runtime is away, which others tell, that waits.
func (n *Network) collect(ctx context.Context) (empty bool, err error) {
	containers, ok := n.cfg.Containers(ctx)
	if !ok {
		return false, nil
	}
	empty = true
	gone, err := n.pods.Collect(func(e podnet.Entry) bool {
		lives := slices.Contains(containers, e.ID.Container) || time.Since(e.Since).Abs() < young
		empty = empty && !lives
		return lives
	})
	if gone > 0 {
		n.cfg.Log.Info("networks of pods that are no more were taken away", "count", gone)
	}
	return empty && err == nil, err
}

// write makes the file say data, which c is written as.
func (n *Network) write(data []byte, c cni.Config) error {
	n.mu.Lock()
	n.written = data
	n.mu.Unlock()
	changed, err := n.folder.write(data)
	if changed {
		n.cfg.Log.Info("network configuration is written", "file", filepath.Join(n.folder.path, FileName), "networks", subnets(c.Ranges))
		n.cfg.Events.Normal(pod.Ref{}, "NetworkConfigured", configured(c))
	}
	if err == nil {
		n.was = c
	}
	return err
}

func configured(c cni.Config) string {
	if c.Refuse != "" {
		return "pods have the host's network or none"
	}
	return fmt.Sprintf("pods have addresses of %v", subnets(c.Ranges))
}
