package policy

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

// Rank returns the pods in the order of eviction for a signal, first to evict first.
// It omits critical pods, which are never evicted. The rules are those of
// pkg/kubelet/eviction/helpers.go:
//
//   - memory and disk: pods that exceed their request, then pods of lower priority,
//     then pods whose usage exceeds their request most;
//   - process IDs: pods of lower priority, then pods with the most tasks.
//
// A pod without stats precedes the others, for process IDs those of the same priority.
// Upstream compares the stats even then.
// Ties are broken by age, youngest first, and then by UID. All pods must have running
// processes. The result points into pods.
func Rank(pods []Pod, s evictionapi.Signal, l Layout) []*Pod {
	keys := make([]key, 0, len(pods))
	for i := range pods {
		if p := &pods[i]; p.Pod != nil && !pod.IsCritical(p.Pod) {
			keys = append(keys, keyOf(p, s, l))
		}
	}
	slices.SortFunc(keys, key.compare)
	out := make([]*Pod, len(keys))
	for i := range keys {
		out[i] = keys[i].pod
	}
	return out
}

// key holds the sort keys of a pod. Smaller values sort first, except for excess.
type key struct {
	pod *Pod
	// class is 0 without stats, 1 above the request, otherwise 2. For process IDs it
	// is always 0.
	class    uint8
	priority int32
	// excess is the usage minus the request, for process IDs the highest number without
	// stats.
	excess int64
}

func keyOf(p *Pod, s evictionapi.Signal, l Layout) key {
	k := key{pod: p}
	if p.Pod.Spec.Priority != nil {
		k.priority = *p.Pod.Spec.Priority
	}
	var used, asked, spared int64
	switch r := s.Resource(); r {
	case evictionapi.ResourcePIDs:
		if k.excess = p.Processes.Value; !p.Known {
			k.excess = math.MaxInt64
		}
		return k
	case v1.ResourceMemory:
		used, asked = p.Memory.Value, request(p.Pod, r)
		spared = asked
	default:
		// Inodes cannot be requested, so any usage exceeds the request. Upstream
		// still subtracts the request for bytes.
		inodes := r == evictionapi.ResourceInodes
		used, spared = diskUsage(p, l.storageParts(s), inodes), request(p.Pod, v1.ResourceEphemeralStorage)
		if !inodes {
			asked = spared
		}
	}
	switch {
	case !p.Known:
		return k
	case used > asked:
		k.class = 1
	default:
		k.class = 2
	}
	k.excess = used - spared
	return k
}

func (k key) compare(o key) int {
	return cmp.Or(
		cmp.Compare(k.class, o.class),
		cmp.Compare(k.priority, o.priority),
		cmp.Compare(o.excess, k.excess),
		o.pod.Pod.CreationTimestamp.Compare(k.pod.Pod.CreationTimestamp.Time),
		cmp.Compare(k.pod.Pod.UID, o.pod.Pod.UID),
	)
}
