package nodestatus

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Changed reports whether two statuses differ in more than heartbeats and the order
// of conditions. nil differs from any status but nil (nodeStatusHasChanged in
// pkg/kubelet/kubelet_node_status.go).
func Changed(before, after *v1.NodeStatus) bool {
	if before == nil || after == nil {
		return before != after
	}
	a, b := *before, *after
	a.Conditions, b.Conditions = withoutHeartbeats(a.Conditions), withoutHeartbeats(b.Conditions)
	return !equality.Semantic.DeepEqual(&a, &b)
}

func withoutHeartbeats(list []v1.NodeCondition) []v1.NodeCondition {
	sorted := slices.SortedStableFunc(slices.Values(list), func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	for i := range sorted {
		sorted[i].LastHeartbeatTime = metav1.Time{}
	}
	return sorted
}

// wholeSeconds truncates a time to whole seconds, as JSON has it.
func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
