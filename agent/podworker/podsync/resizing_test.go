package podsync

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// TestReadShares has a runtime that converts shares by the curve, where 512
// shares are a weight of 59. By the linear formula 1536 shares have that weight.
func TestReadShares(t *testing.T) {
	const old, line = 59, 59
	if w := criconfig.CurvedCPUWeight(512); w != old {
		t.Fatalf("the curve makes %d of 512 shares", w)
	}
	for _, row := range []struct {
		name   string
		runs   int64 // shares that the runtime reports; 0 for none
		weight uint64
		memory int64 // limit
		noSwap bool
		want   int64
	}{
		{"not carried out", 512, old, 0, false, 512},
		{"carried out", 1536, criconfig.CurvedCPUWeight(1536), 0, false, 1536},
		{"carried out by a runtime of the line", 1536, line, 0, false, 1536},
		{"not carried out, and the runtime can without accounting of swap", 512, old, 0, true, 512},
		{"by hand", 512, line, 64 << 20, true, 1536},
		{"by hand, from another size", 256, line, 64 << 20, true, 1536},
		{"not by hand yet", 256, criconfig.CurvedCPUWeight(256), 64 << 20, true, 256},
		{"the runtime does not tell", 0, line, 0, false, 1536},
	} {
		t.Run(row.name, func(t *testing.T) {
			var a resize.Actual
			if row.runs > 0 {
				a.CPUShares = resize.Known(row.runs)
			}
			l := cgroups.Limits{CPUWeight: cgroups.Number{Value: row.weight, Known: true}}
			n := &criconfig.Node{SwapAccounting: !row.noSwap}
			wanted := resize.Values{CPURequest: 1500, MemoryLimit: row.memory}
			if got := read(a, &l, &cgroups.Resources{CPUWeight: line}, wanted, n).CPUShares; got != resize.Known(row.want) {
				t.Errorf("%+v, want %d", got, row.want)
			}
		})
	}
}

// A disabled quota is no step of a resize.
func TestNoQuotaIsNoneForAResize(t *testing.T) {
	wanted := desiredCgroup(&cgroups.Resources{CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: cgroups.Unlimited, Period: 100000}})
	if wanted.CPUQuota != resize.Known(0) || wanted.CPUWeight != resize.Known(39) {
		t.Errorf("%+v", wanted)
	}
}

// Systemd stores whole percents of a CPU: a pod with the rounded quota is
// settled, and reports the requested quota. With the kernel's files a pod has
// exactly the quota that is written.
func TestWholePercentsOfSystemdAreSettled(t *testing.T) {
	for _, tt := range []struct {
		driver, cpu string
		quota       uint64
		settled     bool
		shows       int64
	}{
		{criconfig.DriverSystemd, "333m", 34000, true, 333},
		{criconfig.DriverSystemd, "333m", 33300, true, 333},
		{criconfig.DriverSystemd, "333m", 35000, false, 350},
		{criconfig.DriverSystemd, "333m", cgroups.NoLimit, false, 0},
		{criconfig.DriverSystemd, "340m", 34000, true, 340},
		{criconfig.DriverCgroupfs, "333m", 33300, true, 333},
		{criconfig.DriverCgroupfs, "333m", 34000, false, 340},
	} {
		amounts := v1.ResourceList{v1.ResourceCPU: resource.MustParse(tt.cpu)}
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: amounts, Limits: amounts}}}}}
		n := &criconfig.Node{CgroupDriver: tt.driver, CPUCFSQuota: true}
		c := &p.Spec.Containers[0]
		group, limits := criconfig.PodResources(p, n), criconfig.ContainerLimits(p, c, n)
		has := cgroups.Limits{
			CPUWeight: cgroups.Number{Value: group.CPUWeight, Known: true},
			CPUQuota:  cgroups.Number{Value: tt.quota, Known: true}, CPUPeriod: 100000,
		}
		actual := read(resize.Actual{}, &has, &limits, resize.DesiredValues(p, c), n)
		w := resize.State{
			Containers: map[string]resize.Running{"c": {ID: "1", Actual: actual}},
			Cgroup:     groupOf(&has, &group, n), DesiredCgroup: desiredCgroup(&group),
		}
		plan := resize.PlanOf(p, &w)
		shows := actual.CPUQuota.Value * 1000 / actual.CPUPeriod
		if plan.IsEmpty() != tt.settled || shows != tt.shows {
			t.Errorf("%s, %s with %d us: settled %v, shows %dm: %+v", tt.driver, tt.cpu, tt.quota, plan.IsEmpty(), shows, plan.Steps)
		}
	}
}

// A resize that waits for preempted pods is not decided.
func TestResizeWaitsForPreemption(t *testing.T) {
	node := &nodeinfo.Admission{MaxPods: 9, Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"),
	}}
	onBench(t, func(c *Config) { c.AdmitNode = func() *nodeinfo.Admission { return node } }, func(b *bench) {
		requests := func(uid types.UID, cpu string, priority int32) *v1.Pod {
			p := burstable(uid, cpu, "1Mi")
			p.Spec.Priority, p.ResourceVersion = &priority, "1"
			return p
		}
		undecided := func(when string, want bool) {
			t.Helper()
			if got := b.ResizeUndecided("critical"); got != want {
				t.Errorf("%s: undecided %t, want %t", when, got, want)
			}
		}
		b.OnPodAdded(requests("critical", "1", 2000001000))
		b.OnPodAdded(requests("other", "1", 0))
		undecided("no resize", false)
		b.OnPodAdded(requests("critical", "2", 2000001000))
		undecided("the other pod has to end", true)
		undecided("it has not ended", true)
		b.OnPodRemoved(pod.Ref{UID: "other"})
		undecided("it has ended", false)
	})
}
