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

// Values that the runtime does not report come from the record, and no others.
func TestOr(t *testing.T) {
	record := resize.Recorded(resize.Values{CPURequest: 1000, CPULimit: 2000, MemoryRequest: 1, MemoryLimit: 2}, 0)
	if got := (resize.Actual{}).WithFallback(record); got != record {
		t.Errorf("got %+v", got)
	}
	got := resize.Observed(2, 1000, 50000, 0).WithFallback(record)
	want := resize.Actual{CPUShares: resize.Known(2), CPUQuota: resize.Known(1000), CPUPeriod: 50000, MemoryLimit: resize.Known(0), MemoryRequest: resize.Known(1)}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
