package nodestatus

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// handlers sets the features of each runtime handler, by name, and those of the
// whole runtime (RuntimeHandlers and NodeFeatures in
// pkg/kubelet/nodestatus/setters.go).
func handlers(s *v1.NodeStatus, in *Inputs) {
	if in.RuntimeStatus == nil {
		return
	}
	s.RuntimeHandlers = nil
	for _, h := range in.RuntimeStatus.GetRuntimeHandlers() {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name:     h.GetName(),
			Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users},
		})
	}
	slices.SortFunc(s.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	if features := in.RuntimeStatus.GetFeatures(); features != nil {
		groups := features.GetSupplementalGroupsPolicy()
		s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
}
