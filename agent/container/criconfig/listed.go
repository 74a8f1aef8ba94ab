package criconfig

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The runtime returns labels and annotations of all sandboxes in one response,
// and those of all containers in another. A response of more than 16 MiB fails.
// So each pod has a share, in bytes of keys and values. With 110 pods, each
// with a sandbox, running containers and exited ones, both responses stay below
// 8 MiB.
const (
	sandboxShare   = 16 << 10 // for the pod's labels, and the same for its annotations
	containerShare = 32 << 10 // for hooks and ports in containerAnnotations, for all containers of a pod
)

// fitEntries returns a copy of as many entries as fit into share bytes, the
// shortest first. It returns nil if all is nil.
func fitEntries(all map[string]string, share int) map[string]string {
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

// fitsShare reports whether text, which describes a hook or ports, fits into the
// container's share.
func fitsShare(p *v1.Pod, text []byte) bool {
	containers := len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	return len(text) <= containerShare/2/max(containers, 1)
}
