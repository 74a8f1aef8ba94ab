package nodestatus_test

import (
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// at is the current time of the tests.
var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ips(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func quantities(pairs map[v1.ResourceName]string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, text := range pairs {
		list[name] = resource.MustParse(text)
	}
	return list
}

// board returns the inputs of a healthy board with 512 MB.
func board(t *testing.T, changes ...func(*nodestatus.Inputs)) *nodestatus.Inputs {
	t.Helper()
	kubelet, own := config.Default()
	in := &nodestatus.Inputs{
		Config: &config.Config{Kubelet: kubelet, Tinylet: own, NodeName: "gateway-7"},
		Now:    at,
		Machine: machine.Info{
			MachineID: "8f0e7a3c1b2d4e5f90a1b2c3d4e5f607", SystemUUID: "10000000b2f0c1d3", BootID: "5c1e2f7a-9a44-4d2f-8d4b-1a2b3c4d5e6f",
			KernelVersion: "6.12.41-v8+", OSImage: "Debian GNU/Linux 13 (trixie)",
		},
		Capacity: quantities(map[v1.ResourceName]string{
			"cpu": "4", "memory": "498692Ki", "ephemeral-storage": "1000Mi", "pods": "110",
		}),
		HostIPs:        ips("127.0.0.1", "192.168.1.20", "::1", "2001:db8::20", "fe80::1"),
		DefaultIPs:     ips("192.168.1.20", "2001:db8::20"),
		RuntimeVersion: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"},
		RuntimeStatus: &runtimeapi.StatusResponse{
			RuntimeHandlers: []*runtimeapi.RuntimeHandler{
				{Name: "crun", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}},
				{Name: ""},
			},
			Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		},
		Images: []*runtimeapi.Image{
			{Id: "sha256:1", RepoTags: []string{"docker.io/library/busybox:1.37"}, RepoDigests: []string{"docker.io/library/busybox@sha256:aa"}, Size: 1_900_000},
			{Id: "sha256:2", RepoTags: []string{"registry.k8s.io/pause:3.10"}, Size: 260_000},
		},
	}
	in.Config.Kubelet.EvictionHard = map[string]string{"memory.available": "16Mi", "nodefs.available": "10%"}
	for _, change := range changes {
		change(in)
	}
	return in
}

// status returns a node's status for valid inputs.
func status(t *testing.T, old *v1.NodeStatus, in *nodestatus.Inputs) v1.NodeStatus {
	t.Helper()
	s, err := nodestatus.Status(old, in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// condition returns the condition of a type.
func condition(t *testing.T, s *v1.NodeStatus, kind v1.NodeConditionType) v1.NodeCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("no condition %s in %v", kind, s.Conditions)
	return v1.NodeCondition{}
}
