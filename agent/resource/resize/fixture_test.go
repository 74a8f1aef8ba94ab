package resize_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// list returns cpu and memory; an empty amount is omitted.
func list(cpu, memory string) v1.ResourceList {
	out := v1.ResourceList{}
	if cpu != "" {
		out[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[v1.ResourceMemory] = resource.MustParse(memory)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func asks(cpuRequest, memoryRequest, cpuLimit, memoryLimit string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(cpuRequest, memoryRequest), Limits: list(cpuLimit, memoryLimit)}
}

type option func(*v1.Pod)

func app(name string, r v1.ResourceRequirements, restartFor ...v1.ResourceName) option {
	return func(p *v1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: r, ResizePolicy: policy(restartFor)})
	}
}

func setup(name string, r v1.ResourceRequirements, restartFor ...v1.ResourceName) option {
	return func(p *v1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name, Resources: r, ResizePolicy: policy(restartFor)})
	}
}

func sidecar(name string, r v1.ResourceRequirements, restartFor ...v1.ResourceName) option {
	return func(p *v1.Pod) {
		setup(name, r, restartFor...)(p)
		p.Spec.InitContainers[len(p.Spec.InitContainers)-1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
}

func whole(r v1.ResourceRequirements) option {
	return func(p *v1.Pod) { p.Spec.Resources = &r }
}

func prio(n int32) option { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func source(name string) option {
	return func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationSource: name} }
}

func phase(is v1.PodPhase) option { return func(p *v1.Pod) { p.Status.Phase = is } }

func policy(names []v1.ResourceName) []v1.ContainerResizePolicy {
	out := []v1.ContainerResizePolicy{}
	for _, name := range names {
		out = append(out, v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: v1.RestartContainer})
	}
	return out
}

func newPod(options ...option) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "web", Generation: 2}}
	for _, o := range options {
		o(p)
	}
	return p
}

// room is a node with two CPUs and 1 GiB, and its other pods.
func room(t *testing.T, others ...*v1.Pod) func(*v1.Pod) resize.Fit {
	t.Helper()
	node := &nodeinfo.Admission{Name: "board", OS: "linux", Arch: "arm", MaxPods: 10, Allocatable: list("2", "1Gi"), Unconfirmed: true}
	for i, other := range others {
		others[i] = resize.Reserved(other)
	}
	return func(p *v1.Pod) resize.Fit {
		r := admission.Fit(p, node, others)
		switch {
		case r == nil:
			return resize.Fit{}
		case len(r.Preempt) > 0:
			return resize.Fit{Preempt: r.Preempt}
		}
		return resize.Fit{Reason: r.Reason, Message: r.Message}
	}
}

func other(uid, cpu, memory string) *v1.Pod {
	p := newPod(app("main", asks(cpu, memory, "", "")))
	p.Name, p.UID = uid, "uid-of-another"
	return p
}
