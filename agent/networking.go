package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/network/proxy"
	"github.com/tinylet/tinylet/agent/network/routes"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/cni/plugin"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// listLimit is the deadline for listing the runtime's sandboxes.
const listLimit = 30 * time.Second

// assembleNetwork creates the owner of the pod network. It manages the host of this
// process, so tests of the agent do not call it.
func (p *parts) assembleNetwork(cfg *config.Config, rt container.Runtime, log *slog.Logger) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find path of this binary for the CNI plugin: %w", err)
	}
	c := network.Config{
		Settings: cfg.Tinylet.Network, Networks: cfg.PodCIDRs(), UplinkAddresses: world, Binary: binary, Ports: cfg.ListenPorts(),
		Info: rt.Info,
		Pods: func(c cni.Config) (network.Pods, error) { return podnet.New(plugin.Pods(c)) },
		Containers: func(ctx context.Context) ([]string, bool) {
			return sandboxes(ctx, rt)
		},
		Teardown: dismantle,
		Watches:  []func(ctx context.Context, told func()) error{watchLinks, watchRules(cfg.Tinylet.Network.Bridge)},
		Events:   p.events, Log: log,
	}
	if p.cluster != nil {
		c.Refresh, c.OnAddressesChanged = p.cluster.registrar.Refresh, p.cluster.moved
	}
	if err := p.assembleRoutes(cfg, &c, log); err != nil {
		return err
	}
	if err := p.assembleServices(cfg, &c, log); err != nil {
		return err
	}
	if p.network, err = network.New(c); err != nil {
		return err
	}
	if p.cluster == nil {
		p.local.SetProblem(problems(problems(plainURL(cfg), cfg.ExposedCredentials), p.network.Problem))
		return nil
	}
	p.cluster.inputs.problem = problems(p.cluster.inputs.problem, p.network.Problem)
	return nil
}

// connected is called when the stream of the runtime's events begins: the runtime's
// process, version or configuration may have changed.
func (p *parts) connected(guard *selfprotect.Guard) {
	if guard != nil {
		guard.RuntimeConnected()
	}
	p.node.runtimeConnected()
	if p.network != nil {
		p.network.Trigger()
	}
}

// problems joins two problems.
func problems(first, second func() string) func() string {
	return func() string { return joined(first(), second()) }
}

// assembleRoutes adds the Router in mode routed. In other modes the routes of an earlier
// agent are removed.
func (p *parts) assembleRoutes(cfg *config.Config, c *network.Config, log *slog.Logger) error {
	open := func() (routes.Kernel, error) { return link.Open() }
	if cfg.Tinylet.Network.Mode != config.NetworkRouted || p.cluster == nil {
		p.networkTasks = append(p.networkTasks, task{name: "routes-cleanup", once: true, run: func(context.Context) error {
			if err := routes.Clear(open); err != nil {
				log.Warn("cannot remove routes to other nodes' pods", "error", err)
			}
			return nil
		}})
		return nil
	}
	router, err := routes.New(routes.Config{
		API: apiclient.Deferred{Client: p.cluster.identity.Client}, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge, Open: open,
		Direct:    func(networks []netip.Prefix) { p.network.Direct(networks) },
		Server:    p.cluster.serverAddresses,
		File:      filepath.Join(cfg.Paths.State, "nodes.json"),
		Recovered: p.cluster.recovered, Events: p.events, Log: log,
	})
	if err != nil {
		return err
	}
	p.networkTasks = append(p.networkTasks, task{name: "routes", run: router.Run}, task{name: "routes-join", once: true, run: func(ctx context.Context) error {
		_, err := p.cluster.identity.Client(ctx) // then the server's addresses are known
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
func (p *parts) assembleServices(cfg *config.Config, c *network.Config, log *slog.Logger) error {
	if !cfg.Tinylet.Network.Services || p.cluster == nil {
		p.networkTasks = append(p.networkTasks, task{name: "services-cleanup", once: true, run: func(context.Context) error {
			if err := clearServices(); err != nil {
				log.Warn("cannot remove rules of Services", "error", err)
			}
			return nil
		}})
		return nil
	}
	serviceProxy, err := proxy.New(proxy.Config{
		API: apiclient.Deferred{Client: p.cluster.identity.Client}, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge,
		Server: p.cluster.serverAddresses, Host: hostAddresses, Ports: cfg.ListenPorts(),
		Open:      func() (proxy.Table, error) { return nft.Open() },
		Recovered: p.cluster.recovered, Events: p.events, Log: log,
	})
	if err != nil {
		return err
	}
	p.networkTasks = append(p.networkTasks, task{name: "services", run: serviceProxy.Run}, task{name: "services-join", once: true, run: func(ctx context.Context) error {
		_, err := p.cluster.identity.Client(ctx) // then the server's addresses are known
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
func watchLinks(ctx context.Context, told func()) error {
	m, err := link.Listen()
	if err != nil {
		return err
	}
	return m.Run(ctx, func(l link.Link) bool { return strings.HasPrefix(l.Name, "veth") }, told)
}

// watchRules watches the rules that all pods share.
func watchRules(bridge string) func(ctx context.Context, told func()) error {
	return func(ctx context.Context, told func()) error { return podnet.Watch(ctx, bridge, told) }
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

// moved handles a possible change of the node's addresses.
func (c *cluster) moved() {
	c.inputs.facts.forgetAddresses()
	c.inputs.checkAddresses()
	if client := c.identity.Current(); client != nil {
		client.CloseStaleConnections()
	}
	c.registrar.Trigger()
}
