package criconfig

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The runtime returns labels and annotations of all sandboxes in one answer, and
// those of all containers in another; an answer of more than 16 MiB fails. So
// each pod has a share of them, in bytes of keys and values: with 110 pods, each
// with a sandbox and containers that have ended beside those that run, both
// answers stay below 8 MiB.
const (
	sandboxShare   = 16 << 10 // of the pod's labels, and as much of its annotations
	containerShare = 32 << 10 // of what containerAnnotations has of hooks and ports, for all containers of a pod
)

// shortest is a copy of as many entries as share has room for, the shortest
// first. It is nil if all is.
func shortest(all map[string]string, share int) map[string]string {
	size := 0
	for k, v := range all {
		size += len(k) + len(v)
	}
	if size <= share {
		return maps.Clone(all)
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a)+len(all[a]), len(b)+len(all[b])), cmp.Compare(a, b))
	})
	kept := map[string]string{}
	for _, k := range keys {
		if share -= len(k) + len(all[k]); share < 0 {
			break
		}
		kept[k] = all[k]
	}
	return kept
}

// listable reports whether a container's share has room for a text that describes
// a hook or ports.
func listable(p *v1.Pod, text []byte) bool {
	containers := len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	return len(text) <= containerShare/2/max(containers, 1)
}
