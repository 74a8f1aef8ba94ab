package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// minCollectAge is the age below which a pod's network is not garbage collected, by the wall
// clock and by the time for which the runtime has not listed the pod: the wall clock of a
// board may be set while a pod starts. The runtime lists a container only after its network
// is set up, which takes a while on a slow board.
const minCollectAge = 10 * time.Minute

// Pods is the network that all pods of the node share. *podnet.Network implements
// it.
type Pods interface {
	// Ensure creates the network, or repairs what others have changed.
	Ensure() error
	// Collect removes the entries of pods for which lives returns false (CNI GC).
	// gone is their number.
	Collect(lives func(podnet.Entry) bool) (gone int, err error)
	// Used returns those of the ranges in which a pod has an address.
	Used(ranges []ipam.Range) ([]ipam.Range, error)
	Close() error
}

// Config configures a Network.
type Config struct {
	Settings config.Network
	// Inputs are the reports of other components.
	Inputs *Inputs
	// Networks are the configured pod networks of the node; nil takes those that
	// the API server assigns.
	Networks []netip.Prefix
	// Fallback are the pod networks of a node that the API server has never assigned any,
	// once the server has not answered for a minute. nil means none.
	Fallback []netip.Prefix
	// ServerAddresses returns the known addresses of the API server. Pod networks must not
	// contain them. It must not block and may be nil.
	ServerAddresses func() []netip.Addr
	// UplinkAddresses returns the node's addresses on its uplinks, and those of its routers.
	// Pod networks must not contain them.
	UplinkAddresses func() ([]netip.Addr, error)
	// Ports are the TCP ports that the agent listens on. No pod gets them as a
	// hostPort.
	Ports []uint16
	// Binary is the path of this program, which the runtime calls as the plugin.
	Binary string
	// Info returns the runtime's configuration: the directories of plugins and of
	// network configurations, which Settings override, and whether the runtime
	// calls the loopback plugin.
	Info func(ctx context.Context) (container.Info, error)
	// Pods opens the pod network of a configuration. It is closed and opened again
	// when the configuration changes.
	Pods func(cni.Config) (Pods, error)
	// Teardown removes the rules and a bridge of such networks, if tinylet has
	// created them.
	Teardown func(bridge string) error
	// Containers returns the IDs of the pod sandboxes in the runtime. ok is false
	// while the runtime does not answer.
	Containers func(ctx context.Context) (ids []string, ok bool)
	// Refresh reads the Node from the API server again, and its podCIDRs are passed
	// to Assigned. It is nil on a standalone node, which has Networks.
	Refresh func(ctx context.Context) error
	// WatchHost calls notify when a link, an address or a route of the host may have changed,
	// until its context ends. OnAddressesChanged are called at each of these changes,
	// because the node's addresses may have changed. They must not block.
	WatchHost          func(ctx context.Context, notify func()) error
	OnAddressesChanged []func()
	// WatchRules is like WatchHost, for the shared rules.
	WatchRules func(ctx context.Context, notify func()) error
	// OnReady are called after each reconcile that has created or verified the
	// shared network, in modes that have one. They must not block.
	OnReady []func()
	// OnConfigured is called when the content of the network configuration has changed. It
	// may be nil and must not block.
	OnConfigured func()
	Events       *event.Recorder
	Log          *slog.Logger
}

// Network maintains the pod network. Its methods are safe for concurrent use and do not
// block, except for Run, which is called once.
type Network struct {
	*Inputs
	cfg   Config
	files watcher

	mu      sync.Mutex
	written []byte // desired content of the file
	problem string // why pods have no network; "" if they have

	// Only for Run.
	folder            folder // of network configurations
	directories       directories
	kept              bool       // the files in folder and directories are maintained
	last              cni.Config // last configuration in the file
	opened            cni.Config // the configuration of pods
	pods              Pods
	said              string    // the logged mode
	wrong             string    // the logged problem
	waitingSince      time.Time // since when podCIDRs or the runtime are missing
	unansweredSince   time.Time // since when Refresh has failed
	uplinkAddresses   []netip.Addr
	formerModeRemoved bool                 // removeFormerMode has removed the network
	formerBridge      string               // the bridge that removeFormerMode removes
	unremoved         string               // the logged error of removeFormerMode
	unlisted          map[cni.ID]time.Time // since when the runtime has not listed a pod with a network
	backoff           wait.Backoff
	pending           []byte    // pending content of the file
	directWritten     time.Time // last write for Direct alone

	unwatched string // the logged error of place
}

// New returns a Network. It reads and changes nothing.
func New(cfg Config) *Network {
	return &Network{
		Inputs: cfg.Inputs, cfg: cfg, files: newWatcher(),
		backoff: wait.Backoff{Max: resyncInterval},
	}
}

// Problem returns why pods have no network, with a remedy. It returns "" if there
// is no problem.
func (n *Network) Problem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

// Run maintains the pod network until ctx ends. It returns the cause of ctx.
func (n *Network) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { n.watch(ctx, n.cfg.WatchHost, n.hostChanged) })
	beside.Go(func() { n.watch(ctx, n.cfg.WatchRules, n.Trigger) })
	beside.Go(func() { n.watchFiles(ctx) })
	defer n.files.Close()
	defer n.close()
	defer n.flush()
	for first := true; ; first = false {
		began := time.Now()
		err := n.reconcile(ctx)
		if ctx.Err() == nil {
			n.setProblem(err)
		}
		fresh := n.place()
		if !n.trigger.Wait(ctx, n.wait(err, first || fresh)) || !wait.Pause(ctx, minSyncInterval-time.Since(began)) {
			return context.Cause(ctx)
		}
	}
}

func (n *Network) close() {
	if n.pods != nil {
		_ = n.pods.Close() // the next one reads the state again
		n.pods = nil
	}
}

// joining is how long a node may wait for its podCIDR and for the runtime before
// that is reported: a new node must be registered and a controller must assign its
// networks, and the runtime may start at the same time as the agent.
const joining = 15 * time.Second

// isJoining reports whether err is expected on a node that joins or starts, and has
// lasted for less than joining.
func (n *Network) isJoining(err error) bool {
	if !errors.Is(err, errUnanswered) && !errors.Is(err, errUnassigned) && !errors.Is(err, container.ErrUnavailable) {
		n.waitingSince = time.Time{}
		return false
	}
	if n.waitingSince.IsZero() {
		n.waitingSince = time.Now()
	}
	return time.Since(n.waitingSince) < joining
}

// setProblem stores the problem, and logs it and records an event when it changes. While
// isJoining is true it only stores it.
func (n *Network) setProblem(err error) {
	text, wrong := "", ""
	if err != nil {
		text, wrong = err.Error(), err.Error()
	}
	for _, kind := range []error{errUnanswered, container.ErrUnavailable} {
		if errors.Is(err, kind) {
			wrong = kind.Error() // the cause may change with each attempt
		}
	}
	n.mu.Lock()
	n.problem = text
	n.mu.Unlock()
	if n.isJoining(err) || wrong == n.wrong {
		return
	}
	n.wrong = wrong
	if err == nil {
		n.cfg.Log.Info("pod network is ready again")
		return
	}
	n.cfg.Log.Warn("pod network is not ready", "error", err)
	n.cfg.Events.Warning(pod.Ref{}, "NetworkNotReady", text)
}

// reconcile reconciles everything.
func (n *Network) reconcile(ctx context.Context) error {
	if err := n.readDirectories(ctx); err != nil {
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
	was, ours := parseOwn(data)
	if data == nil {
		was = n.last // the file was deleted
	}
	n.last = was
	others := foreign(names, func() bool { return ours })
	networks := slices.DeleteFunc(slices.Clone(others), func(name string) bool { return OnlyLoopback(filepath.Join(n.folder.path, name)) })
	mode := SelectMode(n.cfg.Settings.Mode, networks)
	n.announce(mode, others, networks)
	n.kept = mode != config.NetworkCNI
	switch mode {
	case config.NetworkCNI:
		if ours {
			err = n.folder.remove()
			n.last = cni.Config{}
		}
		n.pending = nil
		n.removeFormerMode(ctx, was)
		return err
	case config.NetworkHost:
		desired := hostOnlyConfig(n.cfg.Settings)
		if !n.formerModeRemoved && was.Bridge != "" {
			desired.Bridge = was.Bridge // so that a later agent removes it
		}
		err := n.configure(desired, was, data)
		n.removeFormerMode(ctx, was)
		return err
	}
	n.formerModeRemoved, n.formerBridge = false, ""
	own, doubt := n.networks(ctx, was)
	if len(own) == 0 {
		return doubt
	}
	desired := desiredConfig(n.cfg.Settings, own, n.directly(was))
	desired.Reserved = n.cfg.Ports
	if err := n.ensureShared(ctx, &desired, was); err != nil {
		return err
	}
	for _, ready := range n.cfg.OnReady {
		ready()
	}
	if err := n.configure(desired, was, data); err != nil {
		return err
	}
	return doubt
}

// directly returns the networks of other nodes' pods that are reached without
// masquerading to this node's address.
func (n *Network) directly(was cni.Config) []netip.Prefix {
	networks, set := n.directNetworks()
	if n.cfg.Settings.Mode == config.NetworkRouted && !set {
		return was.Direct
	}
	return networks
}

// announce logs the mode when it changes, and a configuration of others that the
// runtime uses instead of tinylet's because its name sorts first. That includes
// configurations with only the loopback. In mode cni there is no conflict.
func (n *Network) announce(mode string, others, networks []string) {
	first := shadowing(others)
	if mode == config.NetworkCNI {
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
		n.cfg.Log.Info("selected pod network mode", "mode", mode, "others", others)
	case slices.Contains(networks, first):
		n.cfg.Log.Warn("container runtime uses another network configuration first", "mode", mode, "file", file,
			"remedy", "remove the file, or set network.mode of TinyletConfiguration to cni")
	default:
		n.cfg.Log.Warn("container runtime uses a loopback-only configuration first", "mode", mode, "file", file,
			"remedy", "remove the file, or give it a name that sorts after "+FileName)
	}
}

// ensureShared creates or repairs the shared network, and removes the networks of deleted
// pods. Networks of the last configuration are kept as long as pods have addresses
// in them.
func (n *Network) ensureShared(ctx context.Context, desired *cni.Config, was cni.Config) error {
	if err := n.bridge(desired, was); err != nil {
		return err
	}
	desired.Kept = formerRanges(was, desired.Ranges)
	if len(desired.Kept) > 0 {
		if err := n.open(*desired); err != nil {
			return err
		}
		used, err := n.pods.Used(desired.Kept)
		if err != nil {
			return err
		}
		desired.Kept = used
	}
	if err := n.open(*desired); err != nil {
		return err
	}
	if err := n.pods.Ensure(); errors.As(err, new(*nft.Unsupported)) {
		return fmt.Errorf("pods without hostNetwork cannot start: %w", err)
	} else if err != nil {
		return err
	}
	_, err := n.collect(ctx)
	return err
}

// open opens pods for a configuration, unless it is open for that one already.
func (n *Network) open(c cni.Config) error {
	if n.pods != nil && reflect.DeepEqual(n.opened, c) {
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

// collect removes the networks that belong to no container, and reports whether no
// pod has a network then. While the runtime does not answer it does nothing; other
// components report that.
func (n *Network) collect(ctx context.Context) (empty bool, err error) {
	containers, ok := n.cfg.Containers(ctx)
	if !ok {
		return false, nil
	}
	empty = true
	unlisted := map[cni.ID]time.Time{}
	gone, err := n.pods.Collect(func(e podnet.Entry) bool {
		lives := slices.Contains(containers, e.ID.ContainerID)
		if !lives {
			since, known := n.unlisted[e.ID]
			if !known {
				since = time.Now()
			}
			unlisted[e.ID] = since
			lives = time.Since(since) < minCollectAge || time.Since(e.Since).Abs() < minCollectAge
		}
		empty = empty && !lives
		return lives
	})
	n.unlisted = unlisted
	if gone > 0 {
		n.cfg.Log.Info("removed networks of deleted pods", "count", gone)
	}
	return empty && err == nil, err
}

// write writes data, the conflist of c, to the file.
func (n *Network) write(data []byte, c cni.Config) error {
	n.mu.Lock()
	n.written = data
	n.mu.Unlock()
	changed, err := n.folder.write(data)
	if changed {
		n.cfg.Log.Info("wrote network configuration", "file", filepath.Join(n.folder.path, FileName), "networks", subnets(c.Ranges))
		n.cfg.Events.Normal(pod.Ref{}, "NetworkConfigured", configured(c))
		if n.cfg.OnConfigured != nil {
			n.cfg.OnConfigured()
		}
	}
	if err == nil {
		n.last = c
	}
	return err
}

func configured(c cni.Config) string {
	if c.Refuse != "" {
		return "pods use the host's network or have none"
	}
	return fmt.Sprintf("pods get addresses from %v", subnets(c.Ranges))
}
