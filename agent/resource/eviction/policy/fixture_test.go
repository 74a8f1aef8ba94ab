package policy

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// edit changes a pod and its figures.
type edit func(*Pod)

// running returns a pod of the API server with stats, created at t0.
func running(name string, edits ...edit) Pod {
	p := Pod{Known: true, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), Generation: 7, CreationTimestamp: metav1.NewTime(t0),
	}}}
	for _, e := range edits {
		e(&p)
	}
	return p
}

func uses(memory int64) edit  { return func(p *Pod) { p.Memory = Measured(memory) } }
func tasks(n int64) edit      { return func(p *Pod) { p.Processes = Measured(n) } }
func stores(bytes int64) edit { return func(p *Pod) { p.Ephemeral = Measured(bytes) } }
func priority(n int32) edit   { return func(p *Pod) { p.Pod.Spec.Priority = &n } }
func later(seconds int) edit {
	return func(p *Pod) { p.Pod.CreationTimestamp = metav1.NewTime(at(seconds)) }
}
func unknown(p *Pod) { p.Known = false }
func annotated(name string) edit {
	return func(p *Pod) { p.Pod.Annotations = texts{name: pod.SourceFile} }
}

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// container returns a main container with requests.
func container(name string, pairs ...string) edit {
	return func(p *Pod) {
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(pairs...)}})
	}
}

func initial(name string, pairs ...string) edit {
	return func(p *Pod) {
		p.Pod.Spec.InitContainers = append(p.Pod.Spec.InitContainers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(pairs...)}})
	}
}

func sidecar(name string, pairs ...string) edit {
	return func(p *Pod) {
		initial(name, pairs...)(p)
		p.Pod.Spec.InitContainers[len(p.Pod.Spec.InitContainers)-1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
}

// limitedTo returns a main container with limits.
func limitedTo(name string, pairs ...string) edit {
	return func(p *Pod) {
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: list(pairs...)}})
	}
}

func asAWhole(pairs ...string) edit {
	return func(p *Pod) { p.Pod.Spec.Resources = &v1.ResourceRequirements{Requests: list(pairs...)} }
}

func overhead(pairs ...string) edit {
	return func(p *Pod) { p.Pod.Spec.Overhead = list(pairs...) }
}

func stops(d time.Duration) edit {
	return func(p *Pod) { p.Pod.Spec.TerminationGracePeriodSeconds = new(int64(d / time.Second)) }
}

func takes(bytes, inodes int64) Disk { return Disk{Measured(bytes), Measured(inodes)} }

// figures returns the stats of a container.
func figures(name string, memory Measurement, rootfs, logs Disk) edit {
	return func(p *Pod) {
		p.Containers = append(p.Containers, Container{Name: name, Memory: memory, Rootfs: rootfs, Logs: logs})
	}
}

// volume returns a volume with its usage.
func volume(name string, source v1.VolumeSource, d Disk) edit {
	return func(p *Pod) {
		p.Pod.Spec.Volumes = append(p.Pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		p.Volumes = append(p.Volumes, Volume{name, d})
	}
}

func emptyDir(medium v1.StorageMedium, limit string) v1.VolumeSource {
	e := &v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		e.SizeLimit = new(resource.MustParse(limit))
	}
	return v1.VolumeSource{EmptyDir: e}
}
