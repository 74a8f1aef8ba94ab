package resize_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func text(r *v1.ResourceRequirements) string {
	out := ""
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if q, ok := list[name]; ok {
				out += q.String()
			}
			out += " "
		}
	}
	return out[:len(out)-1]
}

func TestContainerResources(t *testing.T) {
	full, before := asks("500m", "64Mi", "1", "128Mi"), asks("250m", "32Mi", "300m", "96Mi")
	has := func(v resize.Values) *resize.Actual { return new(resize.Recorded(v)) }
	running := &v1.ContainerStatus{Resources: &before, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	waiting := &v1.ContainerStatus{Resources: &before}
	for _, row := range []struct {
		name   string
		given  v1.ResourceRequirements
		actual *resize.Actual
		old    *v1.ContainerStatus
		want   string
	}{
		{"does not run", full, nil, running, "500m 64Mi 1 128Mi"},
		{"settled", full, has(resize.Values{CPURequest: 500, CPULimit: 1000, MemoryRequest: 64 << 20, MemoryLimit: 128 << 20}), running, "500m 64Mi 1 128Mi"},
		{"in progress", full, has(resize.Values{CPURequest: 250, CPULimit: 400, MemoryRequest: 32 << 20, MemoryLimit: 64 << 20}), nil, "250m 32Mi 400m 64Mi"},
		{"nothing is known", full, &resize.Actual{}, running, "250m 32Mi 300m 96Mi"},
		{"nothing is known, nor was", full, &resize.Actual{}, nil, "500m 64Mi 1 128Mi"},
		{"nothing is known, and it did not run", full, &resize.Actual{}, waiting, "500m 64Mi 1 128Mi"},
		{"less than the kernel knows", asks("1m", "", "5m", ""), has(resize.Values{CPURequest: 1, CPULimit: 5}), nil, "1m  5m "},
		{"rounded shares", asks("1001m", "", "", ""), has(resize.Values{CPURequest: 1001}), nil, "1001m   "},
		{"a list that was not allocated", asks("500m", "", "", ""), has(resize.Values{CPURequest: 250, CPULimit: 400, MemoryLimit: 64 << 20}), nil, "250m   "},
		{"best effort", asks("", "", "", ""), has(resize.Values{}), nil, "   "},
		{"the pod's limit beside the container's", asks("", "", "1", ""), has(resize.Values{CPURequest: 1000, CPULimit: 1000, MemoryLimit: 64 << 20}), nil, "  1 64Mi"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &v1.Container{Resources: row.given}
			got, allocated := resize.ContainerResources(c, row.actual, row.old)
			if text(got) != row.want {
				t.Errorf("got %q, want %q", text(got), row.want)
			}
			if text(&v1.ResourceRequirements{Requests: allocated}) != text(&v1.ResourceRequirements{Requests: row.given.Requests}) {
				t.Errorf("allocated %v, want %v", allocated, row.given.Requests)
			}
		})
	}
}

func TestPodResources(t *testing.T) {
	given := newPod(whole(asks("500m", "", "1", "128Mi")), app("main", asks("100m", "64Mi", "", "")))
	old := &v1.PodStatus{Phase: v1.PodRunning, Resources: new(asks("250m", "32Mi", "300m", "96Mi"))}
	for _, row := range []struct {
		name   string
		pod    *v1.Pod
		actual *resize.PodActual
		old    *v1.PodStatus
		want   string
	}{
		{"does not run", given, nil, old, "500m 64Mi 1 128Mi"},
		{"in progress", given, &resize.PodActual{CPURequest: 200, CPULimit: 400, MemoryLimit: 64 << 20}, old, "200m 64Mi 400m 64Mi"},
		{"nothing is known", given, &resize.PodActual{}, old, "250m 64Mi 300m 96Mi"},
		{"no resources of its own", newPod(app("main", asks("100m", "64Mi", "", ""))), &resize.PodActual{CPURequest: 100}, nil, "100m 64Mi  "},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got, _ := resize.PodResources(row.pod, row.actual, row.old); text(got) != row.want {
				t.Errorf("got %q, want %q", text(got), row.want)
			}
		})
	}
}
