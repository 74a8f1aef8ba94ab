package nodestatus_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

var update = flag.Bool("update", false, "rewrite the golden nodes in testdata")

// TestGoldenNode compares the whole node of an arm64 board with the one in
// testdata, so that every change of what others read is visible.
func TestGoldenNode(t *testing.T) {
	in := board(t, func(in *nodestatus.Inputs) {
		in.Config.NodeLabels = map[string]string{"site": "roof", "topology.kubernetes.io/zone": "north"}
		in.Config.Kubelet.RegisterWithTaints = []v1.Taint{{Key: "edge", Value: "yes", Effect: v1.TaintEffectNoSchedule}}
		in.Config.NodeIPs = ips("192.168.1.20", "2001:db8::20")
		in.Capacity["hugepages-2Mi"] = quantities(map[v1.ResourceName]string{"x": "8Mi"})["x"]
		in.Machine.Swap = 102396 << 10
		in.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits", "ExtendWebSocketsToKubelet"}
		in.Problems = nodestatus.RuntimeProblems(&runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		}})
	})
	n, err := nodestatus.Initial(in)
	if err != nil {
		t.Fatal(err)
	}
	// The test's machine is told as an arm64 board.
	for _, label := range []string{"kubernetes.io/arch", "beta.kubernetes.io/arch"} {
		if n.Labels[label] != goruntime.GOARCH {
			t.Errorf("label %s is %q", label, n.Labels[label])
		}
		n.Labels[label] = "arm64"
	}
	if n.Status.NodeInfo.Architecture != goruntime.GOARCH {
		t.Errorf("architecture %q", n.Status.NodeInfo.Architecture)
	}
	n.Status.NodeInfo.Architecture = "arm64"
	n.APIVersion, n.Kind = "v1", "Node"

	got, err := yaml.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "arm64-board.yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("node (-want +got):\n%s", cmp.Diff(string(want), string(got)))
	}
}

func TestInitial(t *testing.T) {
	off := false
	edge := v1.Taint{Key: "edge", Effect: v1.TaintEffectNoExecute}
	defaults := map[string]string{
		"kubernetes.io/hostname": "gateway-7", "kubernetes.io/os": "linux", "kubernetes.io/arch": goruntime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": goruntime.GOARCH,
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{defaults, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	attach := map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	for _, row := range []struct {
		name        string
		change      func(*nodestatus.Inputs)
		labels      map[string]string
		annotations map[string]string
		spec        v1.NodeSpec
	}{
		{name: "defaults", labels: defaults, annotations: attach},
		{
			name: "own labels win over the defaults",
			change: func(in *nodestatus.Inputs) {
				in.Config.NodeLabels = map[string]string{"a": "", "kubernetes.io/hostname": "other"}
			},
			labels: with(map[string]string{"a": "", "kubernetes.io/hostname": "other"}), annotations: attach,
		},
		{
			name:   "volumes are attached by the node",
			change: func(in *nodestatus.Inputs) { in.Config.Kubelet.EnableControllerAttachDetach = &off },
			labels: defaults,
		},
		{
			name: "taints and the provider's ID",
			change: func(in *nodestatus.Inputs) {
				in.Config.Kubelet.RegisterWithTaints = []v1.Taint{edge}
				in.Config.Kubelet.ProviderID = "edge://7"
			},
			labels: defaults, annotations: attach,
			spec: v1.NodeSpec{ProviderID: "edge://7", Taints: []v1.Taint{edge}},
		},
		{
			name: "an external cloud provider",
			change: func(in *nodestatus.Inputs) {
				in.Config.CloudProvider = "external"
				in.Config.Kubelet.RegisterWithTaints = []v1.Taint{edge}
				in.Config.NodeIPs = ips("192.168.1.20", "2001:db8::20")
			},
			labels: defaults,
			annotations: map[string]string{
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				"alpha.kubernetes.io/provided-node-ip":                   "192.168.1.20,2001:db8::20",
			},
			spec: v1.NodeSpec{Taints: []v1.Taint{edge, {
				Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule,
			}}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t)
			if row.change != nil {
				row.change(in)
			}
			n, err := nodestatus.Initial(in)
			if err != nil {
				t.Fatal(err)
			}
			if n.Name != "gateway-7" {
				t.Errorf("name %q", n.Name)
			}
			if diff := cmp.Diff(row.labels, n.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.annotations, n.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.spec, n.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if len(n.Status.Conditions) != 4 {
				t.Errorf("the node comes without a status: %v", n.Status.Conditions)
			}
		})
	}
}

// TestInitialDoesNotShare: the node and the configuration share no memory.
func TestInitialDoesNotShare(t *testing.T) {
	in := board(t, func(in *nodestatus.Inputs) {
		in.Config.NodeLabels = map[string]string{"a": "b"}
		in.Config.Kubelet.RegisterWithTaints = []v1.Taint{{Key: "edge"}}
	})
	n, err := nodestatus.Initial(in)
	if err != nil {
		t.Fatal(err)
	}
	n.Labels["a"], n.Spec.Taints[0].Key = "x", "x"
	n.Status.Capacity["cpu"] = quantities(map[v1.ResourceName]string{"x": "1"})["x"]
	if cpu := in.Capacity["cpu"]; in.Config.NodeLabels["a"] != "b" || in.Config.Kubelet.RegisterWithTaints[0].Key != "edge" || cpu.Value() != 4 {
		t.Error("the node shares memory with its inputs")
	}
}
