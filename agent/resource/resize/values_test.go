package resize_test

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func TestWanted(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  option
		main option
		want resize.Values
	}{
		{"all", func(p *v1.Pod) {}, app("main", asks("100m", "1Ki", "200m", "2Ki")), resize.Values{CPURequest: 100, CPULimit: 200, MemoryRequest: 1024, MemoryLimit: 2048}},
		{"a limit is a request of cpu", func(p *v1.Pod) {}, app("main", asks("", "", "200m", "")), resize.Values{CPURequest: 200, CPULimit: 200}},
		{"a request of zero is one", func(p *v1.Pod) {}, app("main", asks("0", "", "200m", "")), resize.Values{CPULimit: 200}},
		{"the pod's limits", whole(asks("", "", "1", "4Ki")), app("main", asks("100m", "", "", "2Ki")), resize.Values{CPURequest: 100, CPULimit: 1000, MemoryLimit: 2048}},
		{"beyond reason", func(p *v1.Pod) {}, app("main", asks("1e20", "1e30", "-1", "1e30")), resize.Values{CPURequest: 1e12, MemoryRequest: math.MaxInt64, MemoryLimit: math.MaxInt64}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPod(row.pod, row.main)
			got := resize.DesiredValues(p, &p.Spec.Containers[0])
			if got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			w := runs(p)
			if plan := resize.PlanOf(p, &w); !plan.IsEmpty() {
				t.Errorf("not settled: %v", words(&plan))
			}
		})
	}
}
