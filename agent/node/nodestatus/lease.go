package nodestatus

import (
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Lease returns the node's lease to create: its name is the node's, its namespace
// is kube-node-lease, and it is held for durationSeconds from now (newLease in
// k8s.io/component-helpers/apimachinery/lease/controller.go and KEP-589). The Node
// owns the lease, so that both are deleted together. nodeUID is "" while it is
// unknown; LeasePatch sets the owner later.
func Lease(nodeName string, nodeUID types.UID, holder string, durationSeconds int32, now time.Time) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Namespace: v1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: &durationSeconds,
			RenewTime:            &renewed,
		},
	}
	if nodeUID != "" {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: nodeUID}}
	}
	return l
}

// LeasePatch returns the merge patch (RFC 7396) that renews existing, the lease
// that the API server has. It has the time of desired, the duration if it differs,
// and the owner if existing has none. Nothing else renews a node's lease, so a
// patch without a resource version overwrites nothing. It usually has 52 bytes. The
// kubelet sends the whole object.
//
// The time never goes back, although the board's clock may. The node controller
// takes only a later time for a renewal, and would set the node to unknown until
// the clock has caught up (pkg/controller/nodelifecycle: updateNodeHealth). It does
// not matter there how much later the time is.
//
// The patch resets the managed fields, which would otherwise come back with each
// renewal and are not needed on a lease. An empty entry resets them, and a server
// tracks none for an object that has none (internal/managedfields:
// skipnonapplied.go and fieldmanager.go of k8s.io/apimachinery/pkg/util).
//
// The error is that of encoding/json, which does not fail for what Lease returns.
func LeasePatch(existing, desired *coordinationv1.Lease) ([]byte, error) {
	renewed := desired.Spec.RenewTime
	if had := existing.Spec.RenewTime; had != nil && !had.Time.Before(renewed.Time) {
		later := metav1.NewMicroTime(had.Add(time.Microsecond))
		renewed = &later
	}
	spec := map[string]any{"renewTime": renewed}
	if had := existing.Spec.LeaseDurationSeconds; had == nil || *had != *desired.Spec.LeaseDurationSeconds {
		spec["leaseDurationSeconds"] = desired.Spec.LeaseDurationSeconds
	}
	meta := make(map[string]any)
	if len(existing.OwnerReferences) == 0 && len(desired.OwnerReferences) > 0 {
		meta["ownerReferences"] = desired.OwnerReferences
	}
	if len(existing.ManagedFields) > 0 {
		meta["managedFields"] = []any{struct{}{}}
	}
	patch := map[string]any{"spec": spec}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	return json.Marshal(patch)
}
