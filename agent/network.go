package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/network/proxy"
	"github.com/tinylet/tinylet/agent/network/routes"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// assembleNetwork builds the owner of the pod network. It changes the host, so tests of the agent
// do without it.
func (a *agent) assembleNetwork() error {
	cfg, rt, log := a.cfg, a.runtime, a.log
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find path of this binary for the CNI plugin: %w", err)
	}
	c := network.Config{
		Settings: cfg.Tinylet.Network, Networks: cfg.PodCIDRs(), UplinkAddresses: network.UplinkAddresses, Binary: binary, Ports: cfg.ListenPorts(),
		Info:       rt.Info,
		Pods:       func(c cni.Config) (network.Pods, error) { return podnet.New(c) },
		Containers: func(ctx context.Context) ([]string, bool) { return network.Sandboxes(ctx, rt) },
		Teardown:   network.Dismantle,
		Watches:    []func(ctx context.Context, notify func()) error{network.WatchLinks, network.WatchRules(cfg.Tinylet.Network.Bridge)},
		Events:     a.events, Log: log,
	}
	if a.cluster != nil {
		c.Refresh, c.OnAddressesChanged = a.cluster.registrar.Refresh, a.cluster.uplinkChanged
		c.Fallback, c.ServerAddresses, c.OnConfigured = config.FallbackPodCIDRs(), a.cluster.serverAddresses, a.cluster.inputs.Trigger
	}
	if err := a.assembleRoutes(&c); err != nil {
		return err
	}
	if err := a.assembleServices(&c); err != nil {
		return err
	}
	if a.network, err = network.New(c); err != nil {
		return err
	}
	if a.cluster == nil {
		a.local.SetProblem(problems(cfg.PlainPodURL, cfg.ExposedCredentials, a.network.Problem))
		return nil
	}
	a.cluster.inputs.Problem = problems(a.cluster.inputs.Problem, a.network.Problem)
	return nil
}

// runtimeConnected is called each time the runtime's event stream starts: the runtime may have
// been restarted, upgraded or reconfigured.
func (a *agent) runtimeConnected() {
	if a.guard != nil {
		a.guard.RuntimeConnected()
	}
	a.node.RuntimeConnected()
	if a.network != nil {
		a.network.Trigger()
	}
}

// problems returns a function that joins the problems of others with a semicolon.
func problems(all ...func() string) func() string {
	return func() string {
		var out []string
		for _, problem := range all {
			if text := problem(); text != "" {
				out = append(out, text)
			}
		}
		return strings.Join(out, "; ")
	}
}

// assembleRoutes adds the Router in mode routed. In other modes the routes of an earlier
// agent are removed.
func (a *agent) assembleRoutes(c *network.Config) error {
	cfg, log := a.cfg, a.log
	open := func() (routes.Kernel, error) { return link.Open() }
	if cfg.Tinylet.Network.Mode != config.NetworkRouted || a.cluster == nil {
		a.networkTasks = append(a.networkTasks, health.Task{Name: "routes-cleanup", Once: true, Run: func(context.Context) error {
			if err := routes.Clear(open); err != nil {
				log.Warn("cannot remove routes to other nodes' pods", "error", err)
			}
			return nil
		}})
		return nil
	}
	router, err := routes.New(routes.Config{
		API: apiclient.Deferred(a.cluster.identity.Client), NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge, Open: open,
		Direct:    func(networks []netip.Prefix) { a.network.Direct(networks) },
		Server:    a.cluster.serverAddresses,
		File:      filepath.Join(cfg.Paths.State, "nodes.json"),
		Recovered: a.cluster.recovered, Events: a.events, Log: log,
	})
	if err != nil {
		return err
	}
	a.networkTasks = append(a.networkTasks, health.Task{Name: "routes", Run: router.Run}, a.cluster.onceJoined("routes-join", router.Trigger))
	c.Problems = append(c.Problems, router.Problem)
	c.OnReady = afterwards(c.OnReady, router.Trigger)
	c.OnAddressesChanged = afterwards(c.OnAddressesChanged, router.Trigger)
	return nil
}

// assembleServices adds the Service proxy if it is enabled. Otherwise the rules of an
// earlier agent are removed.
func (a *agent) assembleServices(c *network.Config) error {
	cfg, log := a.cfg, a.log
	if !cfg.Tinylet.Network.Services || a.cluster == nil {
		a.networkTasks = append(a.networkTasks, health.Task{Name: "services-cleanup", Once: true, Run: func(context.Context) error {
			if err := proxy.Clear(); err != nil {
				log.Warn("cannot remove rules of Services", "error", err)
			}
			return nil
		}})
		return nil
	}
	serviceProxy, err := proxy.New(proxy.Config{
		API: apiclient.Deferred(a.cluster.identity.Client), NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge,
		Server: a.cluster.serverAddresses, Host: proxy.HostAddresses, Ports: cfg.ListenPorts(),
		Open:      func() (proxy.Table, error) { return nft.Open() },
		Recovered: a.cluster.recovered, Events: a.events, Log: log,
	})
	if err != nil {
		return err
	}
	a.networkTasks = append(a.networkTasks, health.Task{Name: "services", Run: serviceProxy.Run}, a.cluster.onceJoined("services-join", serviceProxy.AddressesChanged))
	c.OnAddressesChanged = afterwards(c.OnAddressesChanged, serviceProxy.AddressesChanged)
	c.Problems = append(c.Problems, serviceProxy.Problem)
	c.OnReady = afterwards(c.OnReady, serviceProxy.TableCreated)
	return nil
}

// onceJoined returns a task that calls do when there is a client of the API server: then the
// server's addresses are known.
func (c *cluster) onceJoined(name string, do func()) health.Task {
	return health.Task{Name: name, Once: true, Run: func(ctx context.Context) error {
		_, err := c.identity.Client(ctx)
		do()
		return err
	}}
}

// afterwards returns a function that calls two functions. The first may be nil.
func afterwards(first, second func()) func() {
	if first == nil {
		return second
	}
	return func() {
		first()
		second()
	}
}

// serverAddresses returns the known addresses of the API server.
func (c *cluster) serverAddresses() []netip.Addr { return c.identity.ServerAddresses() }

// uplinkChanged is called when the node's addresses may have changed.
func (c *cluster) uplinkChanged() {
	c.inputs.Node.ForgetAddresses()
	c.inputs.CheckAddresses()
	if client := c.identity.Current(); client != nil {
		client.CloseStaleConnections()
	}
	c.registrar.Trigger()
}
