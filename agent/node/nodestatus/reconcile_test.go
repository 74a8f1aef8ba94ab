package nodestatus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func TestReconcile(t *testing.T) {
	type list = map[v1.ResourceName]string
	const attach = "volumes.kubernetes.io/controller-managed-attach-detach"
	node := func(labels, annotations map[string]string, capacity, allocatable list) *v1.Node {
		n := &v1.Node{}
		n.Labels, n.Annotations = labels, annotations
		if capacity != nil {
			n.Status.Capacity = quantities(capacity)
		}
		if allocatable != nil {
			n.Status.Allocatable = quantities(allocatable)
		}
		return n
	}
	for _, row := range []struct {
		name              string
		existing, initial *v1.Node
		want              *v1.Node
		changed           bool
	}{
		{
			name:     "nothing to do; taints, status and others' labels stay",
			existing: node(map[string]string{"kubernetes.io/os": "linux", "x": "y"}, map[string]string{attach: "true"}, list{"cpu": "1"}, list{"cpu": "1"}),
			initial:  node(map[string]string{"kubernetes.io/os": "linux"}, map[string]string{attach: "true"}, list{"cpu": "4"}, list{"cpu": "4"}),
			want:     node(map[string]string{"kubernetes.io/os": "linux", "x": "y"}, map[string]string{attach: "true"}, list{"cpu": "1"}, list{"cpu": "1"}),
		},
		{
			name: "default labels, and no others",
			existing: node(map[string]string{
				"kubernetes.io/hostname": "a", "topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "t", "site": "roof",
			}, nil, list{}, list{}),
			initial: node(map[string]string{
				"kubernetes.io/hostname": "b", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64",
				"topology.kubernetes.io/zone": "", "topology.kubernetes.io/region": "r",
				"failure-domain.beta.kubernetes.io/zone": "fz", "failure-domain.beta.kubernetes.io/region": "fr",
				"beta.kubernetes.io/instance-type": "bt", "site": "cellar",
			}, nil, list{}, list{}),
			want: node(map[string]string{
				"kubernetes.io/hostname": "b", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64",
				"topology.kubernetes.io/region":          "r",
				"failure-domain.beta.kubernetes.io/zone": "fz", "failure-domain.beta.kubernetes.io/region": "fr",
				"beta.kubernetes.io/instance-type": "bt", "node.kubernetes.io/instance-type": "t", "site": "roof",
			}, nil, list{}, list{}),
			changed: true,
		},
		{
			name:     "a node without labels",
			existing: node(nil, nil, list{}, list{}),
			initial:  node(map[string]string{"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": ""}, nil, list{}, list{}),
			want:     node(map[string]string{"kubernetes.io/os": "linux"}, nil, list{}, list{}),
			changed:  true,
		},
		{
			name:     "the annotation comes",
			existing: node(nil, nil, list{}, list{}),
			initial:  node(nil, map[string]string{attach: "true", "other": "x"}, list{}, list{}),
			want:     node(nil, map[string]string{attach: "true"}, list{}, list{}),
			changed:  true,
		},
		{
			name:     "the annotation goes",
			existing: node(nil, map[string]string{attach: "true", "other": "x"}, list{}, list{}),
			initial:  node(nil, nil, list{}, list{}),
			want:     node(nil, map[string]string{"other": "x"}, list{}, list{}),
			changed:  true,
		},
		{
			name:     "a node that somebody created by hand gets the resources",
			existing: node(nil, nil, nil, nil),
			initial:  node(nil, nil, list{"cpu": "4"}, list{"cpu": "3"}),
			want:     node(nil, nil, list{"cpu": "4"}, list{"cpu": "3"}),
			changed:  true,
		},
		{
			name:     "extended resources count zero until somebody says so again",
			existing: node(nil, nil, list{"cpu": "4", "example.com/a": "2", "example.com/b": "0", "kubernetes.io/c": "1", "example.com/mine": "3"}, list{"example.com/a": "1", "example.com/mine": "3"}),
			initial:  node(nil, nil, list{"example.com/mine": "5"}, list{"example.com/mine": "5"}),
			want:     node(nil, nil, list{"cpu": "4", "example.com/a": "0", "example.com/b": "0", "kubernetes.io/c": "1", "example.com/mine": "3"}, list{"example.com/a": "0", "example.com/mine": "3"}),
			changed:  true,
		},
		{
			name:     "extended resources that are zero cost no request",
			existing: node(nil, nil, list{"example.com/a": "0"}, list{"example.com/a": "0"}),
			initial:  node(nil, nil, list{}, list{}),
			want:     node(nil, nil, list{"example.com/a": "0"}, list{"example.com/a": "0"}),
		},
		{
			name:     "what can still be allocated of a resource that is gone",
			existing: node(nil, nil, list{"example.com/a": "0"}, list{"example.com/a": "2"}),
			initial:  node(nil, nil, list{}, list{}),
			want:     node(nil, nil, list{"example.com/a": "0"}, list{"example.com/a": "0"}),
			changed:  true,
		},
		{
			name:     "huge pages: another number, a new size, one that is gone",
			existing: node(nil, nil, list{"memory": "1Gi", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}, list{"memory": "1Gi", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}),
			initial:  node(nil, nil, list{"memory": "2Gi", "hugepages-2Mi": "8Mi", "hugepages-64Ki": "0"}, list{"memory": "2Gi", "hugepages-2Mi": "8Mi", "hugepages-64Ki": "0"}),
			want:     node(nil, nil, list{"memory": "1Gi", "hugepages-2Mi": "8Mi", "hugepages-64Ki": "0"}, list{"memory": "1Gi", "hugepages-2Mi": "8Mi", "hugepages-64Ki": "0"}),
			changed:  true,
		},
		{
			name:     "huge pages: only what is allocatable differs",
			existing: node(nil, nil, list{"hugepages-2Mi": "8Mi"}, list{"hugepages-2Mi": "4Mi"}),
			initial:  node(nil, nil, list{"hugepages-2Mi": "8Mi"}, list{"hugepages-2Mi": "8Mi"}),
			want:     node(nil, nil, list{"hugepages-2Mi": "8Mi"}, list{"hugepages-2Mi": "8Mi"}),
			changed:  true,
		},
		{
			name:     "huge pages on a node without allocatable",
			existing: node(nil, nil, list{}, nil),
			initial:  node(nil, nil, list{"hugepages-2Mi": "8Mi"}, nil),
			want:     node(nil, nil, list{"hugepages-2Mi": "8Mi"}, list{"hugepages-2Mi": "0"}),
			changed:  true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			taint := []v1.Taint{{Key: "by-hand"}}
			row.existing.Spec.Taints, row.want.Spec.Taints = taint, taint
			row.initial.Spec.Taints = []v1.Taint{{Key: "at-registration"}}
			before := row.existing.DeepCopy()
			got, changed := nodestatus.Reconcile(row.existing, row.initial)
			if changed != row.changed {
				t.Errorf("changed is %t", changed)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, row.existing); diff != "" {
				t.Errorf("the existing node was changed:\n%s", diff)
			}
			if again, changed := nodestatus.Reconcile(got, row.initial); changed {
				t.Errorf("a second time changes it again: %s", cmp.Diff(got, again))
			}
		})
	}
}
