//go:build adopt

package handover

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// limited is a container with a request and a limit of CPU and of memory; ""
// is none.
func limited(cpuRequest, cpuLimit, memoryRequest, memoryLimit string) v1.Container {
	return v1.Container{Resources: v1.ResourceRequirements{
		Requests: amounts(v1.ResourceCPU, cpuRequest, v1.ResourceMemory, memoryRequest),
		Limits:   amounts(v1.ResourceCPU, cpuLimit, v1.ResourceMemory, memoryLimit),
	}}
}

// amounts makes a list of names and quantities in turn, without those that are
// "".
func amounts(pairs ...any) v1.ResourceList {
	var out v1.ResourceList
	for i := 0; i < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[v1.ResourceName(fmt.Sprint(pairs[i]))] = resource.MustParse(text)
		}
	}
	return out
}

// sidecar is an init container that goes on.
func sidecar(c v1.Container) v1.Container {
	always := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// with adds to the requests and the limits of a container.
func with(c v1.Container, name v1.ResourceName, quantity string) v1.Container {
	for _, list := range []*v1.ResourceList{&c.Resources.Requests, &c.Resources.Limits} {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(quantity)
	}
	return c
}

func inits(c ...v1.Container) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) { s.InitContainers = c }
}

// whole gives the pod resources of its own (KEP-2837).
func whole(cpuRequest, cpuLimit, memoryRequest, memoryLimit string) func(*v1.PodSpec) {
	r := limited(cpuRequest, cpuLimit, memoryRequest, memoryLimit).Resources
	return func(s *v1.PodSpec) { s.Resources = &r }
}

// cgroupPods are pods whose groups differ in what an agent has to compute:
// classes, sums over containers of each kind, resources of the pod's own,
// roundings and bounds.
func cgroupPods() []*v1.Pod {
	none := limited("", "", "", "")
	var pods []*v1.Pod
	add := func(name string, containers []v1.Container, edits ...func(*v1.PodSpec)) {
		zero := int64(0)
		p := &v1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("0c0c0c0c-%04d-4000-8000-000000000000", len(pods)+1))},
			Spec:       v1.PodSpec{HostNetwork: true, TerminationGracePeriodSeconds: &zero, Containers: containers},
		}
		for _, edit := range edits {
			edit(&p.Spec)
		}
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			c.Name, c.Image, c.Command = fmt.Sprintf("c%d", i), "localhost/busybox:1", []string{"sleep", "1000000"}
		}
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			c.Name, c.Image, c.Command = fmt.Sprintf("i%d", i), "localhost/busybox:1", []string{"true"}
			if c.RestartPolicy != nil {
				c.Command = []string{"sleep", "1000000"}
			}
		}
		pods = append(pods, p)
	}
	of := func(c ...v1.Container) []v1.Container { return c }

	add("best-effort", of(none))
	add("best-effort-two", of(none, none))
	add("guaranteed", of(limited("100m", "100m", "16Mi", "16Mi")))
	add("guaranteed-two", of(limited("50m", "50m", "16Mi", "16Mi"), limited("25m", "25m", "8Mi", "8Mi")))
	add("guaranteed-whole-cpu", of(limited("1", "1", "16Mi", "16Mi")))
	add("cpu-request", of(limited("50m", "", "", "")))
	add("memory-request", of(limited("", "", "24Mi", "")))
	add("memory-limit-over-request", of(limited("", "", "16Mi", "48Mi")))
	add("cpu-limit-over-request", of(limited("20m", "150m", "", "")))
	add("cpu-limit-alone", of(limited("", "30m", "", "")))
	add("memory-limit-alone", of(limited("", "", "", "20Mi")))
	add("both-limits-over-requests", of(limited("10m", "333m", "10Mi", "33Mi")))
	add("least-cpu", of(limited("1m", "1m", "8Mi", "8Mi")))
	add("odd-bytes", of(limited("7m", "13m", "8000001", "9000001")))
	add("zero-requests", of(limited("0", "100m", "0", "16Mi")))
	add("one-without-limits", of(limited("20m", "40m", "16Mi", "16Mi"), none))
	add("one-without-cpu-limit", of(limited("20m", "40m", "16Mi", "16Mi"), limited("20m", "", "8Mi", "16Mi")))
	add("two-limited", of(limited("20m", "40m", "8Mi", "16Mi"), limited("30m", "60m", "8Mi", "24Mi")))
	add("large-init", of(limited("20m", "40m", "8Mi", "16Mi")), inits(limited("80m", "90m", "16Mi", "40Mi")))
	add("init-without-limits", of(limited("20m", "40m", "8Mi", "16Mi")), inits(none))
	add("sidecar-limited", of(limited("20m", "40m", "8Mi", "16Mi")), inits(sidecar(limited("30m", "50m", "8Mi", "16Mi"))))
	add("sidecar-without-limits", of(limited("20m", "40m", "8Mi", "16Mi")), inits(sidecar(none)))
	add("sidecar-then-init", of(limited("20m", "40m", "8Mi", "16Mi")), inits(sidecar(limited("30m", "50m", "8Mi", "16Mi")), limited("50m", "70m", "16Mi", "24Mi")))
	add("pod-level", of(none), whole("40m", "80m", "16Mi", "32Mi"))
	add("pod-level-guaranteed", of(none, none), whole("60m", "60m", "32Mi", "32Mi"))
	add("pod-level-over-containers", of(limited("10m", "20m", "8Mi", "16Mi"), none), whole("50m", "100m", "24Mi", "48Mi"))
	add("pod-level-memory-alone", of(limited("10m", "", "", "")), whole("", "", "16Mi", "24Mi"))
	add("overhead", of(limited("10m", "20m", "8Mi", "16Mi")), func(s *v1.PodSpec) {
		s.Overhead = amounts(v1.ResourceCPU, "15m", v1.ResourceMemory, "4Mi")
	})
	add("huge-pages", of(with(limited("10m", "20m", "8Mi", "16Mi"), "hugepages-2Mi", "4Mi")))
	add("huge-pages-two", of(with(limited("10m", "10m", "8Mi", "8Mi"), "hugepages-2Mi", "2Mi"), with(limited("10m", "10m", "8Mi", "8Mi"), "hugepages-2Mi", "4Mi")))
	add("ephemeral-storage", of(with(none, v1.ResourceEphemeralStorage, "10Mi")))
	add("critical", of(limited("10m", "", "8Mi", "")), func(s *v1.PodSpec) {
		priority := int32(2000001000)
		s.PriorityClassName, s.Priority = "system-node-critical", &priority
	})
	return pods
}
