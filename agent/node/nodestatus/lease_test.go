package nodestatus_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func TestLease(t *testing.T) {
	now := time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("CET", 3600))
	for _, row := range []struct {
		uid  types.UID
		want string
	}{
		{"u-1", `{"metadata":{"name":"gateway-7","namespace":"kube-node-lease","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gateway-7","uid":"u-1"}]},` +
			`"spec":{"holderIdentity":"me","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z"}}`},
		{"", `{"metadata":{"name":"gateway-7","namespace":"kube-node-lease"},` +
			`"spec":{"holderIdentity":"me","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z"}}`},
	} {
		lease := nodestatus.Lease("gateway-7", row.uid, "me", 40, now)
		if renewed := lease.Spec.RenewTime; renewed.Nanosecond() != 123456000 {
			t.Errorf("renewed at %s, which no API server keeps", renewed)
		}
		got, err := json.Marshal(lease)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, string(got)); diff != "" {
			t.Errorf("lease (-want +got):\n%s", diff)
		}
	}
}

// tracked returns the lease of a server that tracks managed fields.
func tracked(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "tinylet", Operation: metav1.ManagedFieldsOperationUpdate}}
	return l
}

func TestLeasePatch(t *testing.T) {
	next := at.Add(10 * time.Second)
	lease := nodestatus.Lease
	for _, row := range []struct {
		name             string
		existing, wanted *coordinationv1.Lease
		want             string
	}{
		{
			"a renewal", lease("n", "u", "n", 40, at), lease("n", "u", "n", 40, next),
			`{"spec":{"renewTime":"2026-03-01T12:00:10.000000Z"}}`,
		},
		{
			"the node's UID is not known", lease("n", "u", "n", 40, at), lease("n", "", "n", 40, next),
			`{"spec":{"renewTime":"2026-03-01T12:00:10.000000Z"}}`,
		},
		{
			"another duration, and an owner", lease("n", "", "n", 40, at), lease("n", "u", "n", 60, next),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]},` +
				`"spec":{"leaseDurationSeconds":60,"renewTime":"2026-03-01T12:00:10.000000Z"}}`,
		},
		{
			"the clock was set back by an hour", lease("n", "u", "n", 40, at.Add(time.Hour)), lease("n", "u", "n", 40, next),
			`{"spec":{"renewTime":"2026-03-01T13:00:00.000001Z"}}`,
		},
		{
			"twice at one time", lease("n", "u", "n", 40, next), lease("n", "u", "n", 40, next),
			`{"spec":{"renewTime":"2026-03-01T12:00:10.000001Z"}}`,
		},
		{
			"managed fields", tracked(lease("n", "u", "n", 40, at)), lease("n", "u", "n", 40, next),
			`{"metadata":{"managedFields":[{}]},"spec":{"renewTime":"2026-03-01T12:00:10.000000Z"}}`,
		},
		{
			"a lease that says nothing", &coordinationv1.Lease{}, lease("n", "", "n", 40, next),
			`{"spec":{"leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:10.000000Z"}}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := nodestatus.LeasePatch(row.existing, row.wanted)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
