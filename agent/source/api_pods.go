package source

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

// ReasonRefusedPod is for a pod of the API server's that cannot run as it
// is, whoever made it so.
const ReasonRefusedPod = "RefusedPod"

// apiPods are the pods that an API server has for this node, by UID. Those
// that cannot be, of a server that is broken or not what it seems, are
// refused: a pod that is new is left out, and one that is known stays as it
// was until the server deletes it.
type apiPods struct {
	nodeName string
	byUID    map[types.UID]*v1.Pod
}

// all are the pods, the oldest first.
func (s *apiPods) all() []*v1.Pod {
	all := make([]*v1.Pod, 0, len(s.byUID))
	for _, p := range s.byUID {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// replace makes a full list the truth, also where it is older than what is
// known: the server may have been set back. A pod of the version that is known
// keeps its pointer. It answers why pods were refused.
func (s *apiPods) replace(items []v1.Pod) (refused []string) {
	byUID := make(map[types.UID]*v1.Pod, len(items))
	for i := range items {
		old := s.byUID[items[i].UID]
		if old != nil && old.ResourceVersion == items[i].ResourceVersion && old.ResourceVersion != "" {
			byUID[old.UID] = old
			continue
		}
		// A copy, because a pointer would keep the whole list.
		p := items[i]
		sane, reason := s.judge(&p, old)
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

// apply makes one event of a watch, later than all before, a part of what is
// known, and says whether that changed anything, or why the pod was refused.
func (s *apiPods) apply(kind watch.EventType, p *v1.Pod) (changed bool, refused string) {
	old := s.byUID[p.UID]
	if kind == watch.Deleted {
		// A UID never returns, so no deletion is out of date.
		delete(s.byUID, p.UID)
		return old != nil, ""
	}
	if sane, reason := s.judge(p, old); !sane {
		return false, reason
	}
	if s.byUID == nil {
		s.byUID = make(map[types.UID]*v1.Pod)
	}
	s.byUID[p.UID] = slim(p)
	return true, ""
}

// later says whether version a comes after b, or may do so where the two
// cannot be compared.
func later(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order > 0 || (err != nil && a != b)
}

// maxFileName is NAME_MAX; the pod's log folder is NAMESPACE_NAME_UID.
const maxFileName = 255

// judge says whether a pod can be one of this node, and what is to be told if
// not: nothing of another node's pods, which a server that ignores the selector
// sends by the thousand. old is the known pod of that UID or nil. What becomes
// a path must be a name: nobody checks that again.
func (s *apiPods) judge(p, old *v1.Pod) (sane bool, told string) {
	if p.Spec.NodeName != s.nodeName {
		return false, ""
	}
	fault := ""
	switch {
	case !manifest.IsUID(p.UID):
		fault = "its UID is no name of a file"
	case len(validation.IsDNS1123Subdomain(p.Name)) > 0:
		fault = "its name is none"
	case len(validation.IsDNS1123Label(p.Namespace)) > 0:
		fault = "its namespace is none"
	case len(p.Namespace)+len(p.Name)+len(p.UID)+2 > maxFileName:
		fault = "namespace, name and UID are too long for a folder of logs"
	case old != nil && pod.RefOf(p) != pod.RefOf(old):
		fault = fmt.Sprintf("pod %s has its UID", pod.RefOf(old))
	default:
		fault = partFault(&p.Spec)
	}
	if fault == "" {
		return true, ""
	}
	return false, clip(fmt.Sprintf("API server's pod %.300q of namespace %.100q with UID %.100q is refused: %s", p.Name, p.Namespace, p.UID, fault))
}

// partFault looks at the names of containers and volumes, which become paths.
func partFault(spec *v1.PodSpec) string {
	seen := make(map[string]bool, len(spec.Containers))
	for c := range pod.Containers(spec) {
		if len(validation.IsDNS1123Label(c.Name)) > 0 {
			return fmt.Sprintf("container name %.100q is none", c.Name)
		}
		if seen[c.Name] {
			return fmt.Sprintf("two containers are named %s", c.Name)
		}
		seen[c.Name] = true
	}
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Sprintf("volume name %.100q is none", name)
		}
	}
	if len(spec.Containers) == 0 {
		return "it has no containers"
	}
	return ""
}

// slim makes a pod of the server's one for this node: with its source, as the
// kubelet has it, with the defaults that an older server may not know, and
// without what only the server and the scheduler read.
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
