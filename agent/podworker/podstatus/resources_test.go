package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// A running container shows its actual resources, whoever resized it, and any
// other its allocation.
func TestResourcesAreThoseThatRun(t *testing.T) {
	p := basePod([]string{"a"}, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("128Mi")},
		}
	})
	has := running("a", 0, 3)
	has.Resources = &container.Resources{CPUShares: 256, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: 96 << 20}
	seen := map[string]resize.Actual{has.ID: resize.Recorded(resize.Values{CPURequest: 300, CPULimit: 600, MemoryRequest: 1 << 20, MemoryLimit: 2 << 20})}
	for _, row := range []struct {
		name string
		c    container.Container
		seen map[string]resize.Actual
		want [4]string
	}{
		{"as the runtime tells it", has, nil, [4]string{"250m", "64Mi", "500m", "96Mi"}},
		{"as it was seen", has, seen, [4]string{"300m", "1Mi", "600m", "2Mi"}},
		{"the runtime tells nothing", running("a", 0, 3), nil, [4]string{"500m", "64Mi", "1", "128Mi"}},
		{"it has ended", exited("a", 0, 1, 2, 1, ""), nil, [4]string{"500m", "64Mi", "1", "128Mi"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := Input{Pod: p, Now: at(9), Observed: observed(sandbox(0, true), row.c), Actual: row.seen}
			st := Generate(in)
			for range 2 {
				s := st.ContainerStatuses[0]
				got := [4]string{
					s.Resources.Requests.Cpu().String(), s.Resources.Requests.Memory().String(),
					s.Resources.Limits.Cpu().String(), s.Resources.Limits.Memory().String(),
				}
				if got != row.want {
					t.Errorf("got %v, want %v", got, row.want)
				}
				if s.AllocatedResources.Cpu().String() != "500m" || s.AllocatedResources.Memory().String() != "64Mi" {
					t.Errorf("allocated %v", s.AllocatedResources)
				}
				in.Previous = &st
				st = Generate(in) // upon itself it does not change
			}
		})
	}
}

func TestConditionsOfResizes(t *testing.T) {
	pending := &v1.PodCondition{
		Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: "full",
		ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(at(1).Truncate(time.Second)),
	}
	p := basePod([]string{"a"}, fromAPI, policy(v1.RestartPolicyNever), func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
	})
	for _, row := range []struct {
		name string
		c    container.Container
		want *v1.PodCondition
	}{
		{"it runs", running("a", 0, 3), pending},
		{"it is over", exited("a", 0, 1, 2, 1, ""), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			st := Generate(Input{Pod: p, Now: at(9), Observed: observed(sandbox(0, true), row.c), Resize: resize.Conditions{Pending: pending}})
			got := pod.FindCondition(st.Conditions, v1.PodResizePending)
			if (got == nil) != (row.want == nil) || got != nil && *got != *row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			if c := pod.FindCondition(st.Conditions, v1.PodResizeInProgress); c != nil {
				t.Errorf("the API server's %+v came back", c)
			}
		})
	}
}
