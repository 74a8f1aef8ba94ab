package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/network/proxy"
	"github.com/tinylet/tinylet/agent/network/routes"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/cni/plugin"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// listLimit is the deadline for listing the runtime's sandboxes.
const listLimit = 30 * time.Second

// assembleNetwork builds the owner of the pod network. It changes the host, so tests of the agent
// do without it.
func (a *agent) assembleNetwork() error {
	cfg, rt, log := a.cfg, a.runtime, a.log
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find path of this binary for the CNI plugin: %w", err)
	}
	c := network.Config{
		Settings: cfg.Tinylet.Network, Networks: cfg.PodCIDRs(), UplinkAddresses: world, Binary: binary, Ports: cfg.ListenPorts(),
		Info: rt.Info,
		Pods: func(c cni.Config) (network.Pods, error) { return podnet.New(plugin.NetworkConfig(c)) },
		Containers: func(ctx context.Context) ([]string, bool) {
			return sandboxes(ctx, rt)
		},
		Teardown: dismantle,
		Watches:  []func(ctx context.Context, notify func()) error{watchLinks, watchRules(cfg.Tinylet.Network.Bridge)},
		Events:   a.events, Log: log,
	}
	if a.cluster != nil {
		c.Refresh, c.OnAddressesChanged = a.cluster.registrar.Refresh, a.cluster.uplinkChanged
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
		a.local.SetProblem(problems(problems(plainURL(cfg), cfg.ExposedCredentials), a.network.Problem))
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

// problems joins two problems.
func problems(first, second func() string) func() string {
	return func() string { return joined(first(), second()) }
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
		API: apiclient.Deferred{Client: a.cluster.identity.Client}, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge, Open: open,
		Direct:    func(networks []netip.Prefix) { a.network.Direct(networks) },
		Server:    a.cluster.serverAddresses,
		File:      filepath.Join(cfg.Paths.State, "nodes.json"),
		Recovered: a.cluster.recovered, Events: a.events, Log: log,
	})
	if err != nil {
		return err
	}
	a.networkTasks = append(a.networkTasks, health.Task{Name: "routes", Run: router.Run}, health.Task{Name: "routes-join", Once: true, Run: func(ctx context.Context) error {
		_, err := a.cluster.identity.Client(ctx) // then the server's addresses are known
		router.Trigger()
		return err
	}})
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
			if err := clearServices(); err != nil {
				log.Warn("cannot remove rules of Services", "error", err)
			}
			return nil
		}})
		return nil
	}
	serviceProxy, err := proxy.New(proxy.Config{
		API: apiclient.Deferred{Client: a.cluster.identity.Client}, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge,
		Server: a.cluster.serverAddresses, Host: hostAddresses, Ports: cfg.ListenPorts(),
		Open:      func() (proxy.Table, error) { return nft.Open() },
		Recovered: a.cluster.recovered, Events: a.events, Log: log,
	})
	if err != nil {
		return err
	}
	a.networkTasks = append(a.networkTasks, health.Task{Name: "services", Run: serviceProxy.Run}, health.Task{Name: "services-join", Once: true, Run: func(ctx context.Context) error {
		_, err := a.cluster.identity.Client(ctx) // then the server's addresses are known
		serviceProxy.AddressesChanged()
		return err
	}})
	c.OnAddressesChanged = afterwards(c.OnAddressesChanged, serviceProxy.AddressesChanged)
	c.Problems = append(c.Problems, serviceProxy.Problem)
	c.OnReady = afterwards(c.OnReady, serviceProxy.TableCreated)
	return nil
}

// clearServices removes the rules of Services. A kernel without nftables has none.
func clearServices() error {
	table, err := nft.Open()
	if err == nil {
		err = errors.Join(table.ClearServices(), table.Close())
	}
	var missing *nft.Unsupported
	if errors.As(err, &missing) {
		return nil
	}
	return err
}

// dismantle removes the tables of rules, and the bridge unless it has ports or was not
// created by this agent.
func dismantle(bridge string) error {
	if err := podnet.Dismantle(bridge); err != nil {
		return err
	}
	h, err := link.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.Link(bridge)
	if errors.Is(err, link.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ports, err := h.Ports(l.Index)
	if err != nil || len(ports) > 0 || l.Kind != "bridge" || !bytes.Equal(l.MAC, link.StableMAC(bridge)) {
		return err
	}
	return h.DeleteLink(bridge)
}

// world returns the node's addresses on its uplink, and those of the routers.
func world() ([]netip.Addr, error) {
	h, err := link.Open()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	u, err := h.Uplink()
	if errors.Is(err, link.ErrNoRoute) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := slices.Concat(u.V4, u.V6, []netip.Addr{u.Gateway4, u.Gateway6})
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() }), nil
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

// sandboxes returns the IDs of the runtime's pod sandboxes. ok is false if they are
// unknown.
func sandboxes(ctx context.Context, rt container.Runtime) (ids []string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list, err := rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, false
	}
	for _, s := range list {
		ids = append(ids, s.GetId())
	}
	return ids, true
}

// watchLinks watches the host's links, but not those of pods.
func watchLinks(ctx context.Context, notify func()) error {
	m, err := link.Listen()
	if err != nil {
		return err
	}
	return m.Run(ctx, func(l link.Link) bool { return strings.HasPrefix(l.Name, "veth") }, notify)
}

// watchRules watches the rules that all pods share.
func watchRules(bridge string) func(ctx context.Context, notify func()) error {
	return func(ctx context.Context, notify func()) error { return podnet.Watch(ctx, bridge, notify) }
}

// serverAddresses returns the known addresses of the API server.
func (c *cluster) serverAddresses() []netip.Addr {
	if client := c.identity.Current(); client != nil {
		return client.Addresses()
	}
	return nil
}

// hostAddresses returns this machine's addresses, and those of the routers of its
// default routes. Addresses that cannot be read are left out.
func hostAddresses() (own, routers []netip.Addr) {
	h, err := link.Open()
	if err != nil {
		return nil, nil
	}
	defer h.Close()
	addresses, _ := h.Addresses(0)
	for _, a := range addresses {
		own = append(own, a.Prefix.Addr())
	}
	up, _ := h.Uplink()
	for _, a := range []netip.Addr{up.Gateway4, up.Gateway6} {
		if a.IsValid() && !a.IsLinkLocalUnicast() {
			routers = append(routers, a)
		}
	}
	return own, routers
}

// uplinkChanged is called when the node's addresses may have changed.
func (c *cluster) uplinkChanged() {
	c.inputs.Node.ForgetAddresses()
	c.inputs.CheckAddresses()
	if client := c.identity.Current(); client != nil {
		client.CloseStaleConnections()
	}
	c.registrar.Trigger()
}
