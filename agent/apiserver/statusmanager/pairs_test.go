package statusmanager_test

import (
	"cmp"
	"math/rand"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// pair returns two statuses for a seed that differ in some fields and conditions,
// as the inputs of a patch may. Every field may be set, including those of future
// releases. Fields that others own are equal in both, as after a merge.
func pair(seed int64) (before, after *v1.PodStatus) {
	r := rand.New(rand.NewSource(seed))
	fill := randfill.New().RandSource(rand.NewSource(seed+1)).NilChance(.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1<<40), resource.BinarySI)
		},
		func(t *metav1.Time, c randfill.Continue) {
			if *t = (metav1.Time{}); c.Intn(4) > 0 {
				*t = metav1.NewTime(time.Unix(c.Int63n(4)*3600, 0).UTC())
			}
		},
		func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31n(9)) },
		func(s *string, c randfill.Continue) { *s = pick(c.Rand, "", "a", "b", "A", "null", `"\`, "ü", "\x00") },
		func(s *v1.PodConditionType, c randfill.Continue) { *s = pick(c.Rand, conditionTypes...) },
		func(s *v1.ResourceName, c randfill.Continue) {
			*s = pick(c.Rand, v1.ResourceCPU, v1.ResourceMemory, "hugepages-2Mi", "example.com/a")
		},
	)
	before, after = &v1.PodStatus{}, &v1.PodStatus{}
	fill.Fill(before)
	fill.Fill(after)
	// The two have most in common, as two states of one pod have.
	from, to := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range from.NumField() {
		if r.Intn(3) > 0 {
			to.Field(i).Set(from.Field(i))
		}
	}
	after = after.DeepCopy()
	after.ResourceClaimStatuses = before.ResourceClaimStatuses
	after.NodeAllocatableResourceClaimStatuses = before.NodeAllocatableResourceClaimStatuses
	after.ExtendedResourceClaimStatus = before.ExtendedResourceClaimStatus
	for i := range after.Conditions {
		if r.Intn(2) > 0 {
			fill.Fill(&after.Conditions[i].LastTransitionTime)
			fill.Fill(&after.Conditions[i].Message)
		}
	}
	for _, s := range []*v1.PodStatus{before, after} {
		if s.StartTime != nil && s.StartTime.IsZero() {
			s.StartTime = nil // as JSON has it
		}
		s.Conditions = once(s.Conditions, func(c v1.PodCondition) string { return string(c.Type) })
		s.PodIPs = once(s.PodIPs, func(a v1.PodIP) string { return a.IP })
		s.HostIPs = once(s.HostIPs, func(a v1.HostIP) string { return a.IP })
	}
	return before, after
}

var conditionTypes = []v1.PodConditionType{"PodScheduled", "Ready", "Initialized", "ContainersReady", "DisruptionTarget", "example.com/A"}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.Intn(len(from))] }

func once[T any](list []T, key func(T) string) []T {
	var out []T
	seen := map[string]bool{}
	for _, e := range list {
		if !seen[key(e)] {
			seen[key(e)] = true
			out = append(out, e)
		}
	}
	return out
}

// ordered sorts the conditions of a status, because a map has no order.
func ordered(s *v1.PodStatus) v1.PodStatus {
	o := *s
	o.Conditions = slices.Clone(s.Conditions)
	slices.SortFunc(o.Conditions, func(a, b v1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	return o
}
