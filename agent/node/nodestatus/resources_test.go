package nodestatus_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func texts(list v1.ResourceList) map[v1.ResourceName]string {
	all := map[v1.ResourceName]string{}
	for name, q := range list {
		all[name] = q.String()
	}
	return all
}

func TestResources(t *testing.T) {
	type list = map[v1.ResourceName]string
	off := false
	for _, row := range []struct {
		name                  string
		change                func(*nodestatus.Inputs)
		old, oldAllocatable   list
		capacity, allocatable list
	}{
		{
			name: "of a board",
			// 16Mi of memory and 10 % of storage are kept free, the latter in
			// the kubelet's 32 bits: 1048576000 - 104857601.
			capacity:    list{"cpu": "4", "memory": "498692Ki", "pods": "110", "ephemeral-storage": "1000Mi"},
			allocatable: list{"cpu": "4", "memory": "482308Ki", "pods": "110", "ephemeral-storage": "943718399"},
		},
		{
			name: "reserved, with huge pages",
			change: func(in *nodestatus.Inputs) {
				in.Config.Kubelet.KubeReserved = map[string]string{"cpu": "250m", "memory": "32Mi"}
				in.Config.Kubelet.SystemReserved = map[string]string{"cpu": "250m", "ephemeral-storage": "1000Mi"}
				in.Capacity["hugepages-2Mi"] = quantities(list{"x": "128Mi"})["x"]
				in.Capacity["hugepages-1Gi"] = quantities(list{"x": "0"})["x"]
			},
			capacity:    list{"cpu": "4", "memory": "498692Ki", "pods": "110", "ephemeral-storage": "1000Mi", "hugepages-2Mi": "128Mi", "hugepages-1Gi": "0"},
			allocatable: list{"cpu": "3500m", "memory": "318468Ki", "pods": "110", "ephemeral-storage": "0", "hugepages-2Mi": "128Mi", "hugepages-1Gi": "0"},
		},
		{
			name: "storage not counted",
			change: func(in *nodestatus.Inputs) {
				in.Config.Kubelet.LocalStorageCapacityIsolation = &off
			},
			capacity:    list{"cpu": "4", "memory": "498692Ki", "pods": "110"},
			allocatable: list{"cpu": "4", "memory": "482308Ki", "pods": "110"},
		},
		{
			name:           "of others",
			old:            list{"example.com/camera": "2", "cpu": "8", "odd": "1"},
			oldAllocatable: list{"example.com/camera": "0", "example.com/gone": "1", "older": "1", "cpu": "8"},
			capacity:       list{"cpu": "4", "memory": "498692Ki", "pods": "110", "ephemeral-storage": "1000Mi", "example.com/camera": "2", "odd": "1"},
			allocatable:    list{"cpu": "4", "memory": "482308Ki", "pods": "110", "ephemeral-storage": "943718399", "example.com/camera": "2", "odd": "1", "older": "1"},
		},
		{
			name:        "what cannot be read stays",
			change:      func(in *nodestatus.Inputs) { delete(in.Capacity, "memory") },
			old:         list{"memory": "400Mi"},
			capacity:    list{"cpu": "4", "memory": "400Mi", "pods": "110", "ephemeral-storage": "1000Mi"},
			allocatable: list{"cpu": "4", "memory": "384Mi", "pods": "110", "ephemeral-storage": "943718399"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t)
			if row.change != nil {
				row.change(in)
			}
			old := &v1.NodeStatus{}
			if row.old != nil {
				old.Capacity, old.Allocatable = quantities(row.old), quantities(row.oldAllocatable)
			}
			got := status(t, old, in)
			if diff := cmp.Diff(row.capacity, texts(got.Capacity)); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.allocatable, texts(got.Allocatable)); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnreadableReservationKeepsAllocatable(t *testing.T) {
	in := board(t, func(in *nodestatus.Inputs) { in.Config.Kubelet.KubeReserved = map[string]string{"cpu": "much"} })
	old := &v1.NodeStatus{Allocatable: quantities(map[v1.ResourceName]string{"cpu": "3"})}
	got, err := nodestatus.Status(old, in)
	if err == nil || !strings.Contains(err.Error(), "kubeReserved[cpu]") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(map[v1.ResourceName]string{"cpu": "3"}, texts(got.Allocatable)); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	if len(got.Capacity) != 4 || len(got.Conditions) != 4 {
		t.Error("the rest of the status is missing")
	}
}
