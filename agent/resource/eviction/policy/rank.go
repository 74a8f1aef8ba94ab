package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Rank is the order in which pods go for a signal, the first to go first.
// Critical pods never go and are left out. The rules are those of
// pkg/kubelet/eviction/helpers.go:
//
//   - memory and disk: those that use more than they request, then those of
//     lower priority, then those that use the most above their request;
//   - process IDs: those of lower priority, then those with the most tasks.
//
// A pod without figures goes before others, where upstream compares figures.
// Pods that are the same by all that go by their age, the youngest first, and
// by UID. The pods must have something that runs; what is answered points at
// them.
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

// key is what a pod is ranked by; each part that is compared is such that the
// smaller goes first, but excess.
type key struct {
	pod *Pod
	// class is 0 without figures, 1 above the request, else 2; of process IDs
	// it is 0.
	class    uint8
	priority int32
	// excess is how much it uses above its request.
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
		k.excess = p.Processes.value()
		return k
	case v1.ResourceMemory:
		used, asked = p.Memory.value(), request(p.Pod, r)
		spared = asked
	default:
		// No inodes can be requested, so that any are above the request; but
		// upstream takes the request of bytes off them, too.
		inodes := r == evictionapi.ResourceInodes
		used, spared = diskUsage(p, l.places(s), inodes), request(p.Pod, v1.ResourceEphemeralStorage)
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
	if c := cmp.Or(cmp.Compare(k.class, o.class), cmp.Compare(k.priority, o.priority)); c != 0 {
		return c
	}
	if k.pod.Known != o.pod.Known {
		if o.pod.Known {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(o.excess, k.excess); c != 0 {
		return c
	}
	if c := o.pod.Pod.CreationTimestamp.Compare(k.pod.Pod.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Compare(k.pod.Pod.UID, o.pod.Pod.UID)
}
