package nodestatus_test

import (
	"math/rand"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// pair returns two random nodes that differ in some labels, annotations, fields of
// the status and conditions. It may set every field of a status, including those of
// future releases.
func pair(seed int64) (before, after *v1.Node) {
	r := rand.New(rand.NewSource(seed))
	fill := randfill.New().RandSource(rand.NewSource(seed+1)).NilChance(.3).NumElements(0, 4).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1<<40), resource.BinarySI)
		},
		func(t *metav1.Time, c randfill.Continue) {
			if *t = (metav1.Time{}); c.Intn(4) > 0 {
				*t = metav1.NewTime(time.Unix(c.Int63n(4)*3600, 0).UTC())
			}
		},
		func(s *string, c randfill.Continue) { *s = pick(c.Rand, "", "a", "b", "A", "null", `"\`, "ü", "\x00") },
		func(s *v1.NodeConditionType, c randfill.Continue) { *s = pick(c.Rand, conditionTypes...) },
		func(s *v1.NodeAddressType, c randfill.Continue) {
			*s = pick(c.Rand, v1.NodeInternalIP, v1.NodeHostName)
		},
		func(s *v1.ResourceName, c randfill.Continue) {
			*s = pick(c.Rand, v1.ResourceCPU, v1.ResourceMemory, "hugepages-2Mi", "example.com/a")
		},
	)
	before, after = &v1.Node{}, &v1.Node{}
	for _, n := range []*v1.Node{before, after} {
		fill.Fill(&n.Labels)
		fill.Fill(&n.Annotations)
		fill.Fill(&n.Status)
		if r.Intn(20) > 0 {
			n.Status.Conditions = onePerType(n.Status.Conditions)
		}
		// An API server groups a replaced list by type, so that is how a node
		// comes from it.
		group(n.Status.Conditions, func(c v1.NodeCondition) string { return string(c.Type) })
		group(n.Status.Addresses, func(a v1.NodeAddress) string { return string(a.Type) })
	}
	// The two have most in common, as two states of one node have.
	keep := func(from, to any) {
		if r.Intn(3) > 0 {
			reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
		}
	}
	keep(&before.Labels, &after.Labels)
	keep(&before.Annotations, &after.Annotations)
	from, to := reflect.ValueOf(&before.Status).Elem(), reflect.ValueOf(&after.Status).Elem()
	for i := range from.NumField() {
		keep(from.Field(i).Addr().Interface(), to.Field(i).Addr().Interface())
	}
	after = after.DeepCopy()
	conditions := after.Status.Conditions
	for i := range conditions {
		if r.Intn(2) > 0 {
			fill.Fill(&conditions[i].LastHeartbeatTime)
		}
	}
	if len(conditions) == len(onePerType(conditions)) && r.Intn(4) == 0 {
		r.Shuffle(len(conditions), func(i, j int) { conditions[i], conditions[j] = conditions[j], conditions[i] })
	}
	return before, after
}

var conditionTypes = []v1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready", "NetworkUnavailable", "example.com/A"}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.Intn(len(from))] }

func onePerType(list []v1.NodeCondition) []v1.NodeCondition {
	var once []v1.NodeCondition
	seen := map[v1.NodeConditionType]bool{}
	for _, c := range list {
		if !seen[c.Type] {
			seen[c.Type] = true
			once = append(once, c)
		}
	}
	return once
}

// group moves elements of one type to the position of the first of them.
func group[T any](list []T, kind func(T) string) {
	first := map[string]int{}
	for i, e := range list {
		if _, ok := first[kind(e)]; !ok {
			first[kind(e)] = i
		}
	}
	slices.SortStableFunc(list, func(a, b T) int { return first[kind(a)] - first[kind(b)] })
}
