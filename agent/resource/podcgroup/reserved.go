package podcgroup

import (
	"fmt"
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/cgroups"
)

// Reasons of events (pkg/kubelet/events/event.go).
const (
	reasonEnforced    = "NodeAllocatableEnforced"
	reasonNotEnforced = "FailedNodeAllocatableEnforcement"
)

// reservedCgroup is a cgroup of daemons that is limited to reserved resources.
type reservedCgroup struct {
	what, level, path string // level is its value in enforceNodeAllocatable
	amounts           map[string]string
}

// EnforceReserved limits the cgroups of daemons to the resources that the
// configuration reserves for them, if enforceNodeAllocatable has system-reserved or
// kube-reserved, or their -compressible variants, which only set the CPU weight. The
// cgroups must exist. Failures are logged and recorded as events. tree may be nil.
func EnforceReserved(cfg *config.Config, tree *cgroups.Tree, n *criconfig.Node, events *event.Recorder, log *slog.Logger) {
	k := &cfg.Kubelet
	for _, g := range []reservedCgroup{
		{"system reserved", "system-reserved", k.SystemReservedCgroup, k.SystemReserved},
		{"kube reserved", "kube-reserved", k.KubeReservedCgroup, k.KubeReserved},
	} {
		whole := slices.Contains(k.EnforceNodeAllocatable, g.level)
		if !whole && !slices.Contains(k.EnforceNodeAllocatable, g.level+"-compressible") {
			continue
		}
		if err := g.enforce(tree, !whole, n); err != nil {
			log.Error("cannot enforce reserved resources", "cgroup", g.path, "error", err)
			events.Warning(pod.Ref{}, reasonNotEnforced, fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", g.what, g.path, err))
			continue
		}
		events.Normal(pod.Ref{}, reasonEnforced, fmt.Sprintf("Updated limits on %s cgroup %s", g.what, g.path))
	}
}

func (g *reservedCgroup) enforce(tree *cgroups.Tree, weightAlone bool, n *criconfig.Node) error {
	if tree == nil || !tree.Exists(g.path) {
		return fmt.Errorf("find cgroup: %w", cgroups.ErrNotFound)
	}
	list := v1.ResourceList{}
	for name, text := range g.amounts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("parse %s[%s] %q: %w", g.level, name, text, err)
		}
		list[v1.ResourceName(name)] = q
	}
	r, tooLow := tree.WithoutLowMemoryMax(g.path, criconfig.ReservedResources(list, weightAlone, n))
	if err := tree.Ensure(g.path, r); err != nil {
		return err
	}
	if tooLow {
		return fmt.Errorf("memory usage exceeds the reserved %s: raise the reservation and restart the agent", g.amounts["memory"])
	}
	return nil
}
