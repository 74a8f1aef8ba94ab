package resize_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func TestApply(t *testing.T) {
	given := newPod(setup("setup", asks("1", "", "", "")), sidecar("proxy", asks("10m", "", "", "")), app("main", asks("1", "", "2", "")), app("more", v1.ResourceRequirements{}))
	claims := []v1.ResourceClaim{{Name: "gpu"}}
	for _, row := range []struct {
		name string
		spec *v1.Pod
		same bool
	}{
		{"the same", given.DeepCopy(), true},
		{"written otherwise", newPod(setup("setup", asks("1000m", "", "", "")), sidecar("proxy", asks("0.01", "", "", "")), app("main", asks("1", "", "2000m", "")), app("more", asks("", "", "", ""))), true},
		{"a main container", newPod(setup("setup", asks("1", "", "", "")), sidecar("proxy", asks("10m", "", "", "")), app("main", asks("1", "1Gi", "2", "")), app("more", v1.ResourceRequirements{Claims: claims})), false},
		{"an init container", newPod(setup("setup", asks("2", "", "", "")), sidecar("proxy", asks("10m", "", "", "")), app("main", asks("1", "", "2", "")), app("more", v1.ResourceRequirements{Claims: claims})), false},
		{"the pod's own", newPod(whole(v1.ResourceRequirements{}), setup("setup", asks("1", "", "", "")), sidecar("proxy", asks("10m", "", "", "")), app("main", asks("1", "", "2", "")), app("more", v1.ResourceRequirements{Claims: claims})), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, before := resize.FromSpec(given), row.spec.DeepCopy()
			got := a.Apply(row.spec)
			if (got == row.spec) != row.same || a.MatchesSpec(row.spec) != row.same || resize.FromSpec(row.spec).Equal(a) != row.same {
				t.Fatalf("the spec is the allocation: want %v", row.same)
			}
			if !resize.FromSpec(got).Equal(a) || a.Apply(got) != got {
				t.Error("the allocation is not what was applied")
			}
			if !resize.FromSpec(row.spec).Equal(resize.FromSpec(before)) {
				t.Error("the pod was changed")
			}
			if n := len(got.Spec.Containers[1].Resources.Claims); !row.same && n != 1 {
				t.Errorf("%d claims, want 1", n)
			}
		})
	}
}

func TestReserved(t *testing.T) {
	status := func(name, actual, allocated string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, Resources: new(asks(actual, "", "", "")), AllocatedResources: list(allocated, "")}
	}
	for _, row := range []struct {
		name, actual, allocated, want string
	}{
		{"settled", "500m", "500m", "500m"},
		{"shrinks", "1", "500m", "1"},
		{"grows", "100m", "500m", "500m"},
		{"the status is old", "1", "2", "2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPod(app("main", asks("500m", "", "", "")))
			p.Status.ContainerStatuses = []v1.ContainerStatus{status("main", row.actual, row.allocated)}
			if got := resize.Reserved(p).Spec.Containers[0].Resources.Requests; got.Cpu().String() != row.want {
				t.Errorf("got %s, want %s", got.Cpu(), row.want)
			}
		})
	}
	t.Run("pod-level", func(t *testing.T) {
		p := newPod(whole(asks("500m", "", "", "")), app("main", v1.ResourceRequirements{}))
		p.Status.Resources, p.Status.AllocatedResources = new(asks("1", "64Mi", "", "")), list("500m", "64Mi")
		got := resize.Reserved(p).Spec.Resources.Requests
		if got.Cpu().String() != "1" || len(got) != 1 {
			t.Errorf("got %v, want one CPU", got)
		}
	})
}
