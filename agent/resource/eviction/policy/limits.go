package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// Labels of the limits in the metric kubelet_evictions
// (pkg/kubelet/eviction/eviction_manager.go).
const (
	signalEmptyDir  = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// OverLimit reports whether a pod exceeds a limit on local storage, and returns how
// it is evicted for that: with a grace period of 1 s, no condition and no
// annotations. It checks emptyDir volumes first, then the pod, then its containers,
// and returns the first violation (localStorageEviction in
// pkg/kubelet/eviction/eviction_manager.go). Pods of system priority and pods without
// stats are not evicted.
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

// exempt reports whether a pod is never evicted for exceeding its limits. Upstream
// also exempts static pods. On a standalone node all pods are static and share one
// disk, so limits of static pods apply here.
func exempt(p *v1.Pod) bool {
	return p.Spec.Priority != nil && *p.Spec.Priority >= pod.SystemCriticalPriority
}

// HasLimit reports whether the pod has a limit that OverLimit checks and that can be
// exceeded. A volume in memory cannot grow beyond its limit.
func HasLimit(p *v1.Pod) bool {
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

// overEmptyDir checks volumes of any medium. A volume in memory cannot grow beyond
// its limit, which is its size, but is reported if it did.
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

// volumeBytes returns the last entry for a volume.
func volumeBytes(p *Pod, name string) (f Measurement) {
	for i := range p.Volumes {
		if p.Volumes[i].Name == name {
			f = p.Volumes[i].Bytes
		}
	}
	return f
}

// overPod compares the pod with the sum of its containers' limits, even if some
// containers have none.
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

// limited reports whether any container has an ephemeral storage limit. It avoids the
// computation of pod.Limits for most pods.
func limited(s *v1.PodSpec) bool {
	for c := range pod.Containers(s) { // an ephemeral one has no limits
		if _, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}

// overContainer checks main containers only. Writable layers count only if images are
// on nodefs too. A limit of 0 means none.
func overContainer(p *Pod, l Layout) (signal, message string) {
	for i := range p.Containers {
		c := &p.Containers[i]
		limit, ok := containerLimit(&p.Pod.Spec, c.Name)
		if !ok {
			continue
		}
		used := c.Logs.Bytes.Value
		if l == OneFs {
			used = pod.AddSaturating(used, max(c.Rootfs.Bytes.Value, 0))
		}
		if over(Measured(used), limit) {
			return signalContainer, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return "", ""
}

func containerLimit(s *v1.PodSpec, name string) (resource.Quantity, bool) {
	c, kind := pod.FindContainer(s, name)
	if kind != pod.Main {
		return resource.Quantity{}, false
	}
	limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]
	return limit, ok && limit.Value() != 0
}

func over(used Measurement, limit resource.Quantity) bool {
	return used.Known && limit.CmpInt64(used.Value) < 0
}
