package agent

import (
	"fmt"
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// Reasons of events (pkg/kubelet/events/event.go).
const (
	reasonEnforced    = "NodeAllocatableEnforced"
	reasonNotEnforced = "FailedNodeAllocatableEnforcement"
)

// reservedGroup is a group of daemons that is held to what is reserved.
type reservedGroup struct {
	what, level, path string // level is what enforceNodeAllocatable has for it
	amounts           map[string]string
}

// enforceReserved holds the daemons' groups to what is reserved for them,
// where the configuration wants it. They have to be there: who makes them is
// their init. What fails is told, and the node goes on.
func (p *parts) enforceReserved(cfg *config.Config, tree *cgroups.Tree, n *criconfig.Node, log *slog.Logger) {
	k := &cfg.Kubelet
	for _, g := range []reservedGroup{
		{"system reserved", "system-reserved", k.SystemReservedCgroup, k.SystemReserved},
		{"kube reserved", "kube-reserved", k.KubeReservedCgroup, k.KubeReserved},
	} {
		whole := slices.Contains(k.EnforceNodeAllocatable, g.level)
		if !whole && !slices.Contains(k.EnforceNodeAllocatable, g.level+"-compressible") {
			continue
		}
		if err := g.enforce(tree, !whole, n); err != nil {
			log.Error("daemons are not held to what is reserved for them", "group", g.path, "error", err)
			p.events.Warning(pod.Ref{}, reasonNotEnforced, fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", g.what, g.path, err))
			continue
		}
		p.events.Normal(pod.Ref{}, reasonEnforced, fmt.Sprintf("Updated limits on %s cgroup %s", g.what, g.path))
	}
}

func (g *reservedGroup) enforce(tree *cgroups.Tree, weightAlone bool, n *criconfig.Node) error {
	if tree == nil || !tree.Exists(g.path) {
		return fmt.Errorf("there is no such cgroup: %w", cgroups.ErrNotFound)
	}
	list := v1.ResourceList{}
	for name, text := range g.amounts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("%s[%s] %q: %w", g.level, name, text, err)
		}
		list[v1.ResourceName(name)] = q
	}
	r, tooLow := tree.Spare(g.path, criconfig.ReservedResources(list, weightAlone, n))
	if err := tree.Ensure(g.path, r); err != nil {
		return err
	}
	if tooLow {
		return fmt.Errorf("more memory is used there than the %s that are reserved: raise the reserve and start the agent again", g.amounts["memory"])
	}
	return nil
}
