package agent

import (
	"log/slog"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/cgroups"
)

// assembleCPUs makes the owner of the node's CPUs; with the policy none there
// is none.
func (p *parts) assembleCPUs(cfg *config.Config, rt container.Runtime, tree *cgroups.Tree, node *nodeFacts, log *slog.Logger) (err error) {
	p.cpus, err = cpumanager.New(cpumanager.Config{
		Kubelet: &cfg.Kubelet, File: filepath.Join(cfg.Paths.State, "cpus.json"), Runtime: rt, Tree: tree, Node: node.peek,
		Pods: p.statuses.List, Notify: p.statuses.Notify, Events: p.events, Log: log,
	})
	return err
}
