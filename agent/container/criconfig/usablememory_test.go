package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestUsableMemory checks the bound of volumes in memory.
func TestUsableMemory(t *testing.T) {
	memory := func(text string) v1.ResourceList {
		if text == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
	}
	pod := func(whole string, limits ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, limit := range limits {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{Limits: memory(limit)}})
		}
		if whole != "" {
			p.Spec.Resources = &v1.ResourceRequirements{Limits: memory(whole)}
		}
		return p
	}
	overhead := pod("", "100Mi")
	overhead.Spec.Overhead = memory("28Mi")
	initial := pod("", "100Mi")
	initial.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: memory("300Mi")}}}
	for _, tc := range []struct {
		name        string
		pod         *v1.Pod
		allocatable string
		want        int64
	}{
		{"no limits", pod("", ""), "900Mi", 900 << 20},
		{"one of two has a limit", pod("", "100Mi", ""), "900Mi", 900 << 20},
		{"the sum of the limits", pod("", "100Mi", "50Mi"), "900Mi", 150 << 20},
		{"the pod's own limit", pod("200Mi", "100Mi", ""), "900Mi", 200 << 20},
		{"with overhead", overhead, "900Mi", 128 << 20},
		{"an init container has more", initial, "900Mi", 300 << 20},
		{"more than the node has", pod("", "2Gi"), "900Mi", 900 << 20},
		{"the node is not known", pod("", "2Gi"), "", 2 << 30},
		{"nothing is known", pod("", ""), "", 0},
	} {
		if got := UsableMemory(tc.pod, memory(tc.allocatable)); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
