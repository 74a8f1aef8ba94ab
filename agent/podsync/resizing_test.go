package podsync

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/agent/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// Systemd keeps whole percents of a CPU: a pod that has those is as it is to
// be, and shows what was asked for. By the kernel's files a pod has exactly
// what is written.
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
			CPUWeight: cgroups.Figure{Value: group.CPUWeight, Known: true},
			CPUQuota:  cgroups.Figure{Value: tt.quota, Known: true}, CPUPeriod: 100000,
		}
		actual := read(resize.Actual{}, &has, &limits, resize.Wanted(p, c), n)
		w := resize.World{
			Containers: map[string]resize.Running{"c": {ID: "1", Actual: actual}},
			Group:      groupOf(&has, &group, n), Wanted: wantedGroup(&group),
		}
		plan := resize.PlanOf(p, &w)
		shows := actual.CPUQuota.Value * 1000 / actual.CPUPeriod
		if plan.Settled() != tt.settled || shows != tt.shows {
			t.Errorf("%s, %s with %d us: settled %v, shows %dm: %+v", tt.driver, tt.cpu, tt.quota, plan.Settled(), shows, plan.Steps)
		}
	}
}
