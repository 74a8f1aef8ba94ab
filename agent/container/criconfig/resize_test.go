package criconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/cgroups"
)

// TestSharesOfWeights checks that Shares approximately inverts cpuWeight.
func TestSharesOfWeights(t *testing.T) {
	for _, shares := range []int64{2, 10, 102, 256, 512, 1024, 2048, 65536, 262144} {
		got := SharesOfWeight(cpuWeight(shares))
		if cpuWeight(got) != cpuWeight(shares) && cpuWeight(got+1) != cpuWeight(shares) {
			t.Errorf("%d shares are weight %d, which is %d shares", shares, cpuWeight(shares), got)
		}
	}
	for shares, want := range map[int64]uint64{0: 1, 2: 1, 102: 17, 1024: 100, 262144: 10000, 1 << 40: 10000} {
		if got := CurvedCPUWeight(shares); got != want {
			t.Errorf("%d shares are weight %d by the curve, want %d", shares, got, want)
		}
	}
}

func TestWhatAnUpdateSets(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Mi")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("2Mi")},
	}}}}}
	c := &p.Spec.Containers[0]
	n := &Node{CPUCFSQuota: true, MemoryCapacity: 1 << 30, HugePageSizes: []string{"2MB"}, SwapAccounting: true}
	got := UpdateResources(p, c, n)
	if got.GetCpuQuota() != 100000 || got.GetCpuPeriod() != 100000 || got.GetCpuShares() != 512 || got.GetMemoryLimitInBytes() != 2<<20 || got.GetOomScoreAdj() != 999 {
		t.Errorf("%v", got)
	}
	if got.GetHugepageLimits() != nil || got.GetUnified() != nil {
		t.Errorf("what cannot be resized is set again: %v", got)
	}
	want := cgroups.Resources{CPUWeight: cpuWeight(512), CPUMax: cgroups.CPUMax{Quota: 100000, Period: 100000}, MemoryMax: 2 << 20}
	if diff := cmp.Diff(want, ContainerLimits(p, c, n)); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(cgroups.Resources{CPUWeight: 1}, ContainerLimits(p, &v1.Container{}, n)); diff != "" {
		t.Errorf("limits of a container without any (-want +got):\n%s", diff)
	}
}
