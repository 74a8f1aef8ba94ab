package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// networkStage owns the pod network. It changes the host, so most tests of the agent have an empty
// one.
type networkStage struct {
	// networkTasks run the network, and set up or remove routes and Services.
	networkTasks []health.Task
	// problem returns why pods have no network, or why routes or Services are not up to date;
	// "" if there is no problem.
	problem func() string
}

func newNetworkStage(core *core, cl *cluster) (*networkStage, error) {
	s := &networkStage{problem: problems()}
	if !core.hostNetwork {
		return s, nil
	}
	cfg, rt := core.cfg, core.runtime
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find path of this binary for the CNI plugin: %w", err)
	}
	c := network.Config{
		Settings: cfg.Tinylet.Network, Inputs: core.networkInputs, Networks: cfg.PodCIDRs(), UplinkAddresses: network.UplinkAddresses,
		Binary: binary, Ports: cfg.ListenPorts(),
		Info:       rt.Info,
		Pods:       func(c cni.Config) (network.Pods, error) { return podnet.New(c) },
		Containers: func(ctx context.Context) ([]string, bool) { return network.Sandboxes(ctx, rt) },
		Teardown:   network.Dismantle,
		WatchHost:  network.WatchLinks(cfg.Tinylet.Network.Bridge),
		WatchRules: network.WatchRules(cfg.Tinylet.Network.Bridge),
		Events:     core.events, Log: core.log,
	}
	if cl != nil {
		c.Refresh, c.OnAddressesChanged = cl.object.Refresh, []func(){cl.uplinkChanged}
		c.Fallback, c.ServerAddresses, c.OnConfigured = config.FallbackPodCIDRs(), cl.identity.ServerAddresses, core.runtimeStatus.Set
	}
	if err := s.addRoutes(&c, core, cl); err != nil {
		return nil, err
	}
	if err := s.addServices(&c, core, cl); err != nil {
		return nil, err
	}
	n := network.New(c)
	s.networkTasks = append([]health.Task{{Name: "network", Run: n.Run}}, s.networkTasks...)
	s.problem = problems(n.Problem, s.problem)
	return s, nil
}

// problems returns a function that joins the non-empty results of others with semicolons.
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

// addRoutes adds the Router in mode routed. In other modes the routes of an earlier agent are
// removed.
func (s *networkStage) addRoutes(c *network.Config, core *core, cl *cluster) error {
	cfg := core.cfg
	open := func() (routes.Kernel, error) { return link.Open() }
	if cfg.Tinylet.Network.Mode != config.NetworkRouted || cl == nil {
		s.addCleanup("routes-cleanup", core, "cannot remove routes to other nodes' pods", func() error { return routes.Clear(open) })
		return nil
	}
	router, err := routes.New(routes.Config{
		API: cl.api, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge, Open: open,
		Direct: core.networkInputs.Direct, Server: cl.identity.ServerAddresses, File: filepath.Join(cfg.Paths.State, "nodes.json"),
		Recovered: cl.identity.Recovered, Events: core.events, Log: core.log,
	})
	if err != nil {
		return err
	}
	s.networkTasks = append(s.networkTasks, health.Task{Name: "routes", Run: router.Run}, cl.onceJoined("routes-join", router.Trigger))
	s.problem = problems(s.problem, router.Problem)
	c.OnReady = append(c.OnReady, router.Trigger)
	c.OnAddressesChanged = append(c.OnAddressesChanged, router.Trigger)
	return nil
}

// addServices adds the Service proxy if it is enabled. Otherwise the rules of an earlier agent
// are removed.
func (s *networkStage) addServices(c *network.Config, core *core, cl *cluster) error {
	cfg := core.cfg
	if !cfg.Tinylet.Network.Services || cl == nil {
		s.addCleanup("services-cleanup", core, "cannot remove rules of Services", proxy.Clear)
		return nil
	}
	p, err := proxy.New(proxy.Config{
		API: cl.api, NodeName: cfg.NodeName, Bridge: cfg.Tinylet.Network.Bridge,
		Server: cl.identity.ServerAddresses, Host: proxy.HostAddresses, Ports: cfg.ListenPorts(),
		Open:      func() (proxy.Table, error) { return nft.Open() },
		Recovered: cl.identity.Recovered, Events: core.events, Log: core.log,
	})
	if err != nil {
		return err
	}
	s.networkTasks = append(s.networkTasks, health.Task{Name: "services", Run: p.Run}, cl.onceJoined("services-join", p.AddressesChanged))
	s.problem = problems(s.problem, p.Problem)
	c.OnReady = append(c.OnReady, p.TableCreated)
	c.OnAddressesChanged = append(c.OnAddressesChanged, p.AddressesChanged)
	return nil
}

// addCleanup adds a task that removes what an earlier agent has left in the kernel. It tries
// once and logs an error.
func (s *networkStage) addCleanup(name string, core *core, failed string, clear func() error) {
	s.networkTasks = append(s.networkTasks, health.Task{Name: name, Once: true, Run: func(context.Context) error {
		if err := clear(); err != nil {
			core.log.Warn(failed, "error", err)
		}
		return nil
	}})
}
