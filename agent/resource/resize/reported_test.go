package resize_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func TestReported(t *testing.T) {
	tells := func(r v1.ResourceRequirements, allocated v1.ResourceList) option {
		return func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Resources: &r, AllocatedResources: allocated}}
		}
	}
	small, large := asks("100m", "16Mi", "200m", "32Mi"), asks("200m", "32Mi", "400m", "64Mi")
	for _, row := range []struct {
		name string
		spec v1.ResourceRequirements
		told option
		want string
	}{
		{"a new pod", large, func(*v1.Pod) {}, "200m 32Mi 400m 64Mi"},
		{"as it was told", large, tells(large, large.Requests), "200m 32Mi 400m 64Mi"},
		{"resized meanwhile", large, tells(small, small.Requests), "100m 16Mi 200m 32Mi"},
		{"allocated, and not yet carried out", large, tells(small, large.Requests), "200m 32Mi 200m 32Mi"},
		{"limits were added", large, tells(asks("100m", "16Mi", "", ""), small.Requests), "100m 16Mi  "},
		{"the pod's limits beside its own", asks("100m", "", "", ""), tells(asks("100m", "", "1", "64Mi"), small.Requests), "100m   "},
		{"nothing was told", large, tells(v1.ResourceRequirements{}, nil), "   "},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPod(app("main", row.spec), row.told)
			r := resize.FromStatus(p).Containers["main"]
			if got := text(&r); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if got := text(&p.Spec.Containers[0].Resources); got != text(&row.spec) {
				t.Errorf("the pod was changed: %q", got)
			}
		})
	}
}

// The status has sums including the overhead, and memory in whole pages.
func TestReportedOfThePodAsAWhole(t *testing.T) {
	small, large := asks("100m", "16Mi", "200m", "32Mi"), asks("200m", "32Mi", "400m", "64Mi")
	overhead := v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m")}
	for _, row := range []struct {
		name     string
		told     *v1.ResourceRequirements
		overhead v1.ResourceList
		want     string
	}{
		{"nothing was told", nil, nil, "200m 32Mi 400m 64Mi"},
		{"as it was told", new(large), nil, "200m 32Mi 400m 64Mi"},
		{"resized meanwhile", new(small), nil, "100m 16Mi 200m 32Mi"},
		{"with an overhead", new(asks("250m", "32Mi", "450m", "64Mi")), overhead, "200m 32Mi 400m 64Mi"},
		{"in whole pages", new(asks("200m", "32Mi", "400m", "67104768")), nil, "200m 32Mi 400m 64Mi"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPod(app("main", v1.ResourceRequirements{}))
			p.Spec.Resources, p.Spec.Overhead = new(large), row.overhead
			if p.Status.Resources = row.told; row.told != nil {
				p.Status.AllocatedResources = row.told.Requests
			}
			a := resize.FromStatus(p)
			if got := text(a.Pod); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if p.Spec.Resources.Limits.Cpu().String() != "400m" {
				t.Error("the pod was changed")
			}
		})
	}
}
