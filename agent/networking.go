package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/cni/plugin"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/podnet"
)

// listLimit bounds the question for the runtime's sandboxes.
const listLimit = 30 * time.Second

// assembleNetwork makes the owner of the pods' network. It is of the host that
// this process runs on, so tests of the agent do without.
func (p *parts) assembleNetwork(cfg *config.Config, rt container.Runtime, log *slog.Logger) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find out what the runtime has to call for the pods' network: %w", err)
	}
	c := network.Config{
		Settings: cfg.Tinylet.Network, Networks: cfg.PodNetworks(), Binary: binary,
		Pods: func(c cni.Config) (network.Pods, error) { return podnet.New(plugin.Pods(c)) },
		Containers: func(ctx context.Context) ([]string, bool) {
			return sandboxes(ctx, rt)
		},
		Watches: []func(ctx context.Context, told func()) error{watchLinks, podnet.Watch},
		Events:  p.events, Log: log,
	}
	if p.cluster != nil {
		c.Refresh, c.Moved = p.cluster.registrar.Refresh, p.cluster.moved
	}
	p.network, err = network.New(c)
	return err
}

// sandboxes are the IDs of those that the runtime has.
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

// watchLinks hears of the host's links, but not of those of pods.
func watchLinks(ctx context.Context, told func()) error {
	m, err := link.Listen()
	if err != nil {
		return err
	}
	return m.Run(ctx, func(l link.Link) bool { return strings.HasPrefix(l.Name, "veth") }, told)
}

// moved says that the node's addresses may be others.
func (c *cluster) moved() {
	c.inputs.facts.forgetAddresses()
	c.registrar.Look()
}
