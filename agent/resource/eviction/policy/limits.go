package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// Names of the limits in the metric kubelet_evictions
// (pkg/kubelet/eviction/eviction_manager.go).
const (
	signalEmptyDir  = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// OverLimit says whether a pod has more on the node's disk than it may, and
// how it is evicted for that: at once, without a condition and without
// annotations. Its emptyDir volumes are looked at first, then the pod, then
// its containers; the first that is over is told (localStorageEviction in
// pkg/kubelet/eviction/eviction_manager.go). Pods of system priority stay, and
// pods without figures.
func OverLimit(p *Pod, l Layout) (Eviction, bool) {
	if !p.Known || exempt(p.Pod) {
		return Eviction{}, false
	}
	for _, check := range [...]func(*Pod, Layout) (signal, message string){overEmptyDir, overPod, overContainer} {
		if signal, message := check(p, l); signal != "" {
			return Eviction{Signal: signal, Message: message, Grace: immediate}, true
		}
	}
	return Eviction{}, false
}

// exempt says whether a pod is kept whatever it takes. Upstream keeps static
// pods as well. But on a board alone all pods are static: their limits would
// hold for nobody, and the disk that one fills is that of all. Who wrote a
// limit into a manifest has meant it.
func exempt(p *v1.Pod) bool {
	return p.Spec.Priority != nil && *p.Spec.Priority >= pod.SystemCriticalPriority
}

// Limited says whether the pod has a limit that OverLimit knows and that may
// be passed. Volumes in memory cannot grow beyond theirs.
func Limited(p *v1.Pod) bool {
	if exempt(p) {
		return false
	}
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			return true
		}
	}
	return limited(&p.Spec)
}

// overEmptyDir takes a volume of any medium: one in memory cannot grow beyond
// its limit, which is its size, but counts if it has.
func overEmptyDir(p *Pod, _ Layout) (signal, message string) {
	for i := range p.Pod.Spec.Volumes {
		v := &p.Pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if limit := v.EmptyDir.SizeLimit.DeepCopy(); over(volumeBytes(p, v.Name), limit) {
			return signalEmptyDir, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())
		}
	}
	return "", ""
}

// volumeBytes is the last figure of a volume.
func volumeBytes(p *Pod, name string) (f Figure) {
	for i := range p.Volumes {
		if p.Volumes[i].Name == name {
			f = p.Volumes[i].Bytes
		}
	}
	return f
}

// overPod holds the pod against the sum of its containers' limits, though some
// have none.
func overPod(p *Pod, _ Layout) (signal, message string) {
	if !limited(&p.Pod.Spec) {
		return "", ""
	}
	limit, ok := pod.Limits(p.Pod)[v1.ResourceEphemeralStorage]
	if !ok || !over(p.Ephemeral, limit) {
		return "", ""
	}
	return signalPod, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
}

// limited spares most pods the sums.
func limited(s *v1.PodSpec) bool {
	for _, list := range [...][]v1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			if _, ok := list[i].Resources.Limits[v1.ResourceEphemeralStorage]; ok {
				return true
			}
		}
	}
	return false
}

// overContainer looks at main containers only, and at writable layers only
// where images are on nodefs, too. A limit of zero is none.
func overContainer(p *Pod, l Layout) (signal, message string) {
	for i := range p.Containers {
		c := &p.Containers[i]
		limit, ok := containerLimit(&p.Pod.Spec, c.Name)
		if !ok {
			continue
		}
		used := c.Logs.Bytes.value()
		if l == OneFs {
			used = plus(used, max(c.Rootfs.Bytes.value(), 0))
		}
		if over(Measured(used), limit) {
			return signalContainer, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return "", ""
}

func containerLimit(s *v1.PodSpec, name string) (resource.Quantity, bool) {
	for i := range s.Containers {
		if s.Containers[i].Name == name {
			limit, ok := s.Containers[i].Resources.Limits[v1.ResourceEphemeralStorage]
			return limit, ok && limit.Value() != 0
		}
	}
	return resource.Quantity{}, false
}

func over(used Figure, limit resource.Quantity) bool {
	return used.Known && limit.CmpInt64(used.Value) < 0
}
