package pod

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// asking returns a container with the same requests and limits.
func asking(pairs ...string) v1.Container {
	return v1.Container{Resources: v1.ResourceRequirements{Requests: list(pairs...), Limits: list(pairs...)}}
}

func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

func TestRequestsAndLimits(t *testing.T) {
	const huge = "hugepages-2Mi"
	for _, tc := range []struct {
		name         string
		init, main   []v1.Container
		own          *v1.ResourceRequirements
		overhead     v1.ResourceList
		want, limits v1.ResourceList // limits: nil is want
		limited      bool            // in cpu
	}{
		{name: "nothing", want: list(), limited: true},
		{name: "main containers add up", main: []v1.Container{asking("cpu", "1", "memory", "1Mi"), asking("cpu", "500m", "example.com/x", "2")}, want: list("cpu", "1500m", "memory", "1Mi", "example.com/x", "2"), limited: true},
		{name: "one without a limit", main: []v1.Container{asking("cpu", "1"), {}}, want: list("cpu", "1")},
		{name: "an init container that needs more", init: []v1.Container{asking("cpu", "3"), asking("cpu", "2", "memory", "9Mi")}, main: []v1.Container{asking("cpu", "1", "memory", "1Mi")}, want: list("cpu", "3", "memory", "9Mi"), limited: true},
		{name: "an init container that needs less", init: []v1.Container{asking("cpu", "1")}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "2"), limited: true},
		{name: "an init container without a limit", init: []v1.Container{{}}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "2")},
		{name: "a sidecar beside the main containers", init: []v1.Container{sidecar(asking("cpu", "1"))}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "3"), limited: true},
		{name: "a sidecar beside a later init container", init: []v1.Container{sidecar(asking("cpu", "1")), asking("cpu", "5")}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "6"), limited: true},
		{name: "but not beside an earlier one", init: []v1.Container{asking("cpu", "5"), sidecar(asking("cpu", "1"))}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "5"), limited: true},
		{name: "an init container without a limit after a sidecar with one", init: []v1.Container{sidecar(asking("cpu", "1")), {}}, main: []v1.Container{asking("cpu", "2")}, want: list("cpu", "3"), limited: true},
		{
			name: "the pod's own go before", main: []v1.Container{asking("cpu", "1", "memory", "1Mi"), {}},
			own:  &v1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("cpu", "4", huge, "4Mi", "example.com/x", "1")},
			want: list("cpu", "2", "memory", "1Mi"), limits: list("cpu", "4", "memory", "1Mi", huge, "4Mi"), limited: true,
		},
		{
			name: "the overhead comes on top, on limits where there are any", main: []v1.Container{asking("cpu", "1", "memory", "0")}, overhead: list("cpu", "100m", "memory", "8Mi", huge, "2Mi"),
			want: list("cpu", "1100m", "memory", "8Mi", huge, "2Mi"), limits: list("cpu", "1100m", "memory", "0"), limited: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{}
			p.Spec.InitContainers, p.Spec.Containers = tc.init, tc.main
			p.Spec.Resources, p.Spec.Overhead = tc.own, tc.overhead
			before := p.DeepCopy()
			if d := gocmp.Diff(tc.want, Requests(p)); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if tc.limits == nil {
				tc.limits = tc.want
			}
			if d := gocmp.Diff(tc.limits, Limits(p)); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
			if got := HasLimit(p, v1.ResourceCPU); got != tc.limited {
				t.Errorf("limited is %v", got)
			}
			if d := gocmp.Diff(before, p); d != "" {
				t.Errorf("the pod changed (-was +is):\n%s", d)
			}
		})
	}
}
