package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/event"
	"github.com/tinylet/tinylet/agent/pod"
)

// slowLook is how long nothing has to be told before all is looked at again.
const slowLook = 10 * time.Minute

// retryLimit is the longest wait after something failed.
const retryLimit = 30 * time.Second

// Pods is what all pods of the node share: *podnet.Network has it.
type Pods interface {
	// Ensure makes it, or mends what somebody has changed.
	Ensure() error
	// Collect takes away what belongs to containers that are no more.
	Collect(lives func(container string) bool) (gone int, err error)
}

// Shared is what the pods' network is made by.
type Shared struct {
	Mode     string
	Networks []netip.Prefix // of the node's pods
	Direct   []netip.Prefix // destinations that see the pods' own addresses
}

// Config is what a Network needs.
type Config struct {
	Settings config.Network
	// Networks are those of the node's pods as configured; nil leaves them to
	// the API server.
	Networks []netip.Prefix
	// Joined says that there is an API server.
	Joined bool
	// Binary is what the runtime is to call: the path of this program.
	Binary string
	// Pods makes what Ensure and Collect are called on. It is called anew when
	// what is shared has changed.
	Pods func(Shared) (Pods, error)
	// Conflist is the configuration for the runtime.
	Conflist func(Shared) ([]byte, error)
	// Recall reads the networks out of such a configuration; ok says that it
	// is one of Conflist's.
	Recall func(data []byte) (networks []netip.Prefix, ok bool)
	// Containers are those of the sandboxes that the runtime has; ok is false
	// while it does not tell.
	Containers func(ctx context.Context) (ids []string, ok bool)
	// Refresh has the API server tell of the node again (Assigned). nil on a
	// board alone.
	Refresh func(ctx context.Context) error
	Events  *event.Recorder
	Log     *slog.Logger
}

// Network keeps the pods' network as it should be. Its methods never block
// but for Run.
type Network struct {
	cfg    Config
	folder folder
	news   chan struct{} // one slot: look again

	mu       sync.Mutex
	assigned []netip.Prefix // by the API server
	direct   []netip.Prefix
	problem  string // what keeps pods from their network; "" is nothing

	// Of Run alone.
	shared  Shared
	pods    Pods
	said    string // the mode that the log has told
	backoff apiclient.Backoff
}

// New makes a Network; nothing is read or changed yet.
func New(cfg Config) (*Network, error) {
	if cfg.Pods == nil || cfg.Conflist == nil || cfg.Recall == nil || cfg.Log == nil || cfg.Events == nil || cfg.Containers == nil {
		return nil, errors.New("network: the pods' network, its configuration, the runtime, a recorder of events and a log are needed")
	}
	return &Network{cfg: cfg, folder: folder{cfg.Settings.ConfigFolder}, news: make(chan struct{}, 1)}, nil
}

// Look says that something may have changed: a link, a route, a rule.
func (n *Network) Look() {
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// Assigned takes the networks that the API server has for this node's pods
// (podCIDRs of the Node). Texts that are no networks are left out.
func (n *Network) Assigned(texts []string) {
	var networks []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, prefix.Masked())
		}
	}
	n.mu.Lock()
	changed := len(networks) > 0 && !slices.Equal(networks, n.assigned)
	if changed {
		n.assigned = networks
	}
	n.mu.Unlock()
	if changed {
		n.Look()
	}
}

// Direct takes the networks of other nodes' pods that are reached without this
// node's address.
func (n *Network) Direct(networks []netip.Prefix) {
	n.mu.Lock()
	changed := !slices.Equal(networks, n.direct)
	n.direct = networks
	n.mu.Unlock()
	if changed {
		n.Look()
	}
}

// Problem is what keeps pods from having a network, with what helps; "" is
// nothing.
func (n *Network) Problem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

// Run keeps everything up to date until ctx ends; its error is ctx's cause.
func (n *Network) Run(ctx context.Context) error {
	for {
		wait := slowLook
		if err := n.look(ctx); err != nil {
			wait = min(n.backoff.Next(), retryLimit)
			n.tell(err)
		} else {
			n.backoff.Reset()
			n.tell(nil)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-n.news:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tell remembers what is wrong, and says it once.
func (n *Network) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	n.mu.Lock()
	news := text != n.problem
	n.problem = text
	n.mu.Unlock()
	switch {
	case !news:
	case err != nil:
		n.cfg.Log.Warn("the pods' network is not ready", "error", err)
		n.cfg.Events.Warning(pod.Ref{}, "NetworkNotReady", text)
	default:
		n.cfg.Log.Info("the pods' network is ready again")
	}
}

// look brings everything up to date.
func (n *Network) look(ctx context.Context) error {
	names, err := n.folder.names()
	if err != nil {
		return err
	}
	own, err := n.folder.read()
	if err != nil {
		return err
	}
	kept, ours := n.cfg.Recall(own)
	others := foreign(names, func() bool { return ours })
	mode := Decide(n.cfg.Settings.Mode, others)
	n.announce(mode, others)
	switch mode {
	case config.NetworkCNI:
		if ours {
			_, err = n.folder.remove()
		}
		return err
	case config.NetworkHost:
		return n.configure(Shared{Mode: mode})
	}
	shared := Shared{Mode: mode}
	if shared.Networks, err = n.networks(ctx, kept); err != nil {
		return err
	}
	n.mu.Lock()
	shared.Direct = n.direct
	n.mu.Unlock()
	if err := n.share(ctx, shared); err != nil {
		return err
	}
	return n.configure(shared)
}

// announce says which mode it is, once.
func (n *Network) announce(mode string, others []string) {
	say := mode
	if first := shadowing(others); first != "" && mode != config.NetworkCNI {
		say += ", but the runtime takes " + first
	}
	if say == n.said {
		return
	}
	n.said = say
	if say != mode {
		n.cfg.Log.Warn("the container runtime takes a network configuration that is not tinylet's, since its name comes first: remove it, or set network.mode of TinyletConfiguration to cni",
			"mode", mode, "file", filepath.Join(n.folder.path, others[0]))
		return
	}
	n.cfg.Log.Info("how pods get their network", "mode", mode, "others", others)
}

// errNoNetworks says that nobody has told which addresses the pods may have.
var errNoNetworks = errors.New("the node has no podCIDR: start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr, or set network.podCIDRs of TinyletConfiguration")

// networks are those of the node's pods: the configured ones, those of the API
// server, or, as long as it has told none, those of the last time.
func (n *Network) networks(ctx context.Context, kept []netip.Prefix) ([]netip.Prefix, error) {
	if n.cfg.Networks != nil {
		return n.cfg.Networks, nil
	}
	n.mu.Lock()
	assigned := n.assigned
	n.mu.Unlock()
	switch {
	case len(assigned) > 0:
		return assigned, nil
	case len(kept) > 0:
		return kept, nil
	}
	// A controller assigns them a moment after the node was made, and nothing
	// tells of it: the node is not watched.
	if n.cfg.Refresh != nil {
		if err := n.cfg.Refresh(ctx); err != nil {
			return nil, fmt.Errorf("ask the API server for the node's podCIDRs: %w", err)
		}
		n.mu.Lock()
		assigned = n.assigned
		n.mu.Unlock()
	}
	if len(assigned) == 0 {
		return nil, errNoNetworks
	}
	return assigned, nil
}

// share makes what all pods share, and takes away what belongs to none.
func (n *Network) share(ctx context.Context, s Shared) error {
	if n.pods == nil || !equal(n.shared, s) {
		pods, err := n.cfg.Pods(s)
		if err != nil {
			return err
		}
		n.pods, n.shared = pods, s
	}
	if err := n.pods.Ensure(); err != nil {
		return err
	}
	return n.collect(ctx)
}

// collect takes away what belongs to no container. While the runtime is away,
// which others tell, that waits.
func (n *Network) collect(ctx context.Context) error {
	containers, ok := n.cfg.Containers(ctx)
	if !ok {
		return nil
	}
	gone, err := n.pods.Collect(func(container string) bool { return slices.Contains(containers, container) })
	if gone > 0 {
		n.cfg.Log.Info("networks of containers that are no more were taken away", "count", gone)
	}
	return err
}

func equal(a, b Shared) bool {
	return a.Mode == b.Mode && slices.Equal(a.Networks, b.Networks) && slices.Equal(a.Direct, b.Direct)
}

// configure has the runtime call the plugin.
func (n *Network) configure(s Shared) error {
	if err := linkPlugin(n.cfg.Settings.PluginFolder, n.cfg.Binary); err != nil {
		return err
	}
	data, err := n.cfg.Conflist(s)
	if err != nil {
		return err
	}
	changed, err := n.folder.write(data)
	if changed {
		n.cfg.Log.Info("network configuration is written", "file", filepath.Join(n.folder.path, FileName), "mode", s.Mode, "networks", s.Networks)
		n.cfg.Events.Normal(pod.Ref{}, "NetworkConfigured", fmt.Sprintf("pods have addresses of %v", s.Networks))
	}
	return err
}
