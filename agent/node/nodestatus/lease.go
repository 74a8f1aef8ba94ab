package nodestatus

import (
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Lease is the node's heartbeat as it is created: a lease of the node's name
// in the namespace kube-node-lease, held for durationSeconds from now on
// (newLease in k8s.io/component-helpers/apimachinery/lease/controller.go and
// KEP-589). The node owns it, so that it goes with the node; nodeUID is "" as
// long as it is unknown, and LeasePatch sets the owner then.
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

// LeasePatch is the merge patch (RFC 7396) that renews the lease which the
// API server has: the time of wanted, the duration if that is another one,
// and the owner if it has none. Nobody else renews a node's lease, so a patch
// without a resource version loses nothing, and has 53 bytes where the kubelet
// sends the whole object.
//
// The time never goes back, as the board's clock may: the node controller takes
// only a later one for a renewal, and would call the node unknown until the
// clock is where it once was (pkg/controller/nodelifecycle: updateNodeHealth).
// How late it is does not matter there.
//
// Managed fields, which nobody asks of a lease, would come back with each
// renewal. An empty entry resets them, and a server tracks none for an object
// that has none (internal/managedfields: skipnonapplied.go and fieldmanager.go
// of k8s.io/apimachinery/pkg/util).
//
// The error is that of encoding/json, which has none for what Lease makes.
func LeasePatch(existing, wanted *coordinationv1.Lease) ([]byte, error) {
	renewed := wanted.Spec.RenewTime
	if had := existing.Spec.RenewTime; had != nil && !had.Time.Before(renewed.Time) {
		later := metav1.NewMicroTime(had.Add(time.Microsecond))
		renewed = &later
	}
	spec := map[string]any{"renewTime": renewed}
	if had := existing.Spec.LeaseDurationSeconds; had == nil || *had != *wanted.Spec.LeaseDurationSeconds {
		spec["leaseDurationSeconds"] = wanted.Spec.LeaseDurationSeconds
	}
	meta := make(map[string]any)
	if len(existing.OwnerReferences) == 0 && len(wanted.OwnerReferences) > 0 {
		meta["ownerReferences"] = wanted.OwnerReferences
	}
	if len(existing.ManagedFields) > 0 {
		meta["managedFields"] = []any{struct{}{}}
	}
	patch := map[string]any{"spec": spec}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("renew lease %q: %w", wanted.Name, err)
	}
	return data, nil
}
