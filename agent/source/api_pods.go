package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

// ReasonRefusedPod is for an invalid pod from the API server.
const ReasonRefusedPod = "RefusedPod"

// apiPods are the pods that an API server assigns to this node, by UID. Invalid
// pods, from an API server that is broken or spoofed, are rejected: a new pod
// is left out, and a known one keeps its last valid version until the API
// server deletes it.
type apiPods struct {
	nodeName string
	byUID    map[types.UID]*v1.Pod
}

// all returns the pods, the oldest first.
func (s *apiPods) all() []*v1.Pod {
	return slices.SortedFunc(maps.Values(s.byUID), func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
}

// replace sets the pods from a full list, even if the list is older than the
// known state: the API server may have been restored from a backup. A pod of a
// known resource version keeps its pointer. It returns the reasons for rejected
// pods.
func (s *apiPods) replace(items []v1.Pod) (refused []string) {
	byUID := make(map[types.UID]*v1.Pod, len(items))
	for i := range items {
		old := s.byUID[items[i].UID]
		if old != nil && old.ResourceVersion == items[i].ResourceVersion && old.ResourceVersion != "" {
			byUID[old.UID] = old
			continue
		}
		// Copy the pod: a pointer would keep the whole list in memory.
		p := items[i]
		sane, reason := s.validate(&p, old)
		switch {
		case sane:
			byUID[p.UID] = slim(&p)
		case old != nil:
			byUID[old.UID] = old
		}
		if reason != "" {
			refused = append(refused, reason)
		}
	}
	s.byUID = byUID
	return refused
}

// apply applies one watch event. Unless the event is a deletion, it is newer than all before.
// apply reports whether anything changed, or why the pod was rejected.
func (s *apiPods) apply(kind watch.EventType, p *v1.Pod) (changed bool, refused string) {
	old := s.byUID[p.UID]
	if kind == watch.Deleted {
		// A UID is never reused, so a deletion is never stale.
		delete(s.byUID, p.UID)
		return old != nil, ""
	}
	if sane, reason := s.validate(p, old); !sane {
		return false, reason
	}
	s.byUID[p.UID] = slim(p)
	return true, ""
}

// newer reports whether version a is newer than b, or may be if the two cannot
// be compared.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order > 0 || (err != nil && a != b)
}

// maxFileName is NAME_MAX. The pod's log directory is named NAMESPACE_NAME_UID.
const maxFileName = 255

// validate reports whether a pod is a valid pod of this node, and if not the message
// to report. The message is empty for pods of other nodes, since an API server
// that ignores the selector sends thousands of them. old is the known pod with
// that UID, or nil. Everything that becomes a path must be a valid name here:
// it is not checked again later.
func (s *apiPods) validate(p, old *v1.Pod) (sane bool, message string) {
	if p.Spec.NodeName != s.nodeName {
		return false, ""
	}
	fault := ""
	switch {
	case !manifest.IsUID(p.UID):
		fault = "its UID is not a valid file name"
	case len(validation.IsDNS1123Subdomain(p.Name)) > 0:
		fault = "its name is invalid"
	case len(validation.IsDNS1123Label(p.Namespace)) > 0:
		fault = "its namespace is invalid"
	case len(p.Namespace)+len(p.Name)+len(p.UID)+2 > maxFileName:
		fault = "namespace, name and UID are too long for a log directory"
	case old != nil && pod.RefOf(p) != pod.RefOf(old):
		fault = fmt.Sprintf("pod %s has the same UID", pod.RefOf(old))
	default:
		fault = specFault(&p.Spec)
	}
	if fault == "" {
		return true, ""
	}
	return false, fmt.Sprintf("rejected pod %.300q of namespace %.100q with UID %.100q from API server: %s", p.Name, p.Namespace, p.UID, fault)
}

// specFault checks the names of containers and volumes, which become paths.
func specFault(spec *v1.PodSpec) string {
	seen := make(map[string]bool, len(spec.Containers))
	for c := range pod.Containers(spec) {
		if len(validation.IsDNS1123Label(c.Name)) > 0 {
			return fmt.Sprintf("container name %.100q is invalid", c.Name)
		}
		if seen[c.Name] {
			return fmt.Sprintf("duplicate container name %s", c.Name)
		}
		seen[c.Name] = true
	}
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Sprintf("volume name %.100q is invalid", name)
		}
	}
	if len(spec.Containers) == 0 {
		return "it has no containers"
	}
	return ""
}

// slim prepares a pod from the API server for this node. It sets the source
// annotation as the kubelet does, applies defaults that an older API server may
// not know, and removes fields that only the API server and the scheduler read.
func slim(p *v1.Pod) *v1.Pod {
	p.ManagedFields = nil
	p.Spec.TopologySpreadConstraints = nil
	if affinity := p.Spec.Affinity; affinity != nil {
		affinity.PodAffinity, affinity.PodAntiAffinity = nil, nil
	}
	if p.Annotations == nil {
		p.Annotations = make(map[string]string, 1)
	}
	p.Annotations[pod.AnnotationSource] = pod.SourceAPI
	manifest.Default(p)
	return p
}
