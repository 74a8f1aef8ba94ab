package nodestatus_test

import (
	"encoding/json"
	"math"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func TestNodeInfo(t *testing.T) {
	swap := int64(102396 << 10)
	was := func(text string) (info v1.NodeSystemInfo) {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, row := range []struct {
		name   string
		change func(*nodestatus.Inputs)
		old    v1.NodeSystemInfo
		want   v1.NodeSystemInfo
	}{
		{
			name:   "all known, a version of a proxy from before is cleared",
			change: func(in *nodestatus.Inputs) { in.Machine.Swap = swap },
			old:    was(`{"kubeProxyVersion":"v1.30.0","kubeletVersion":"v1.30.0","bootID":"old"}`),
			want: v1.NodeSystemInfo{
				MachineID: "8f0e7a3c1b2d4e5f90a1b2c3d4e5f607", SystemUUID: "10000000b2f0c1d3", BootID: "5c1e2f7a-9a44-4d2f-8d4b-1a2b3c4d5e6f",
				KernelVersion: "6.12.41-v8+", OSImage: "Debian GNU/Linux 13 (trixie)", ContainerRuntimeVersion: "containerd://2.4.2",
				Swap: &v1.NodeSwapStatus{Capacity: &swap},
			},
		},
		{
			name:   "nothing known",
			change: func(in *nodestatus.Inputs) { in.Machine, in.RuntimeVersion = machine.Info{}, nil },
			want:   v1.NodeSystemInfo{KernelVersion: "Unknown", OSImage: "Unknown", ContainerRuntimeVersion: "Unknown://Unknown"},
		},
		{
			name:   "a runtime that has not answered yet keeps its version, swap that is gone goes",
			change: func(in *nodestatus.Inputs) { in.Machine, in.RuntimeVersion = machine.Info{}, nil },
			old:    v1.NodeSystemInfo{ContainerRuntimeVersion: "containerd://2.4.1", Swap: &v1.NodeSwapStatus{Capacity: &swap}},
			want:   v1.NodeSystemInfo{KernelVersion: "Unknown", OSImage: "Unknown", ContainerRuntimeVersion: "containerd://2.4.1"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t)
			row.change(in)
			row.want.OperatingSystem, row.want.Architecture = "linux", goruntime.GOARCH
			row.want.KubeletVersion = version.Kubelet()
			got := status(t, &v1.NodeStatus{NodeInfo: row.old}, in)
			if diff := cmp.Diff(row.want, got.NodeInfo); diff != "" {
				t.Errorf("nodeInfo (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRuntimeVersion(t *testing.T) {
	for _, row := range []struct{ name, version, want string }{
		{"containerd", "v2.4.2", "containerd://2.4.2"},
		{"cri-o", "1.36.0", "cri-o://1.36.0"},
		{"containerd", "2.0.0-rc.1+x", "containerd://2.0.0-rc.1+x"},
		{"containerd", "1.7.24~ds1", "containerd://1.7.24"},
		{"containerd", "<unknown>", "containerd://Unknown"},
		{"", "", "Unknown://Unknown"},
	} {
		got := status(t, nil, board(t, func(in *nodestatus.Inputs) {
			in.RuntimeVersion = &runtimeapi.VersionResponse{RuntimeName: row.name, RuntimeVersion: row.version}
		}))
		if got.NodeInfo.ContainerRuntimeVersion != row.want {
			t.Errorf("%s %s is told as %q, want %q", row.name, row.version, got.NodeInfo.ContainerRuntimeVersion, row.want)
		}
	}
}

func TestImages(t *testing.T) {
	image := func(id string, size uint64, digests, tags []string) *runtimeapi.Image {
		return &runtimeapi.Image{Id: id, Size: size, RepoDigests: digests, RepoTags: tags}
	}
	small, large := image("a", 1, nil, []string{"small"}), image("b", 9, []string{"large@d"}, []string{"large"})
	old := []v1.ContainerImage{{Names: []string{"old"}, SizeBytes: 5}}
	told := func(size int64, names ...string) v1.ContainerImage {
		return v1.ContainerImage{Names: append([]string{}, names...), SizeBytes: size}
	}
	for _, row := range []struct {
		name   string
		most   int32
		images []*runtimeapi.Image
		want   []v1.ContainerImage
	}{
		{"the largest first, digests before tags", 50, []*runtimeapi.Image{small, large}, []v1.ContainerImage{told(9, "large@d", "large"), told(1, "small")}},
		{"so many", 1, []*runtimeapi.Image{small, large}, []v1.ContainerImage{told(9, "large@d", "large")}},
		{"none", 0, []*runtimeapi.Image{small, large}, nil},
		{"all", -1, []*runtimeapi.Image{small, large}, []v1.ContainerImage{told(9, "large@d", "large"), told(1, "small")}},
		{
			"of one size by ID, downwards", 50,
			[]*runtimeapi.Image{image("a", 1, nil, []string{"a"}), image("c", 1, nil, []string{"c"}), image("b", 1, nil, []string{"b"})},
			[]v1.ContainerImage{told(1, "c"), told(1, "b"), told(1, "a")},
		},
		{
			"five names", 50, []*runtimeapi.Image{image("a", 1, []string{"1", "2", "3"}, []string{"4", "5", "6"})},
			[]v1.ContainerImage{told(1, "1", "2", "3", "4", "5")},
		},
		{"no name, and a size that is none", 50, []*runtimeapi.Image{image("a", math.MaxUint64, nil, nil)}, []v1.ContainerImage{told(math.MaxInt64)}},
		{"none there", 50, []*runtimeapi.Image{}, nil},
		{"not asked yet", 50, nil, old},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t, func(in *nodestatus.Inputs) {
				in.Images, in.Config.Kubelet.NodeStatusMaxImages = row.images, &row.most
			})
			got := status(t, &v1.NodeStatus{Images: old}, in)
			if diff := cmp.Diff(row.want, got.Images); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
	if small.GetRepoTags()[0] != "small" || len(large.GetRepoDigests()) != 1 {
		t.Error("the runtime's answer was changed")
	}
}

func TestHandlers(t *testing.T) {
	yes, no := true, false
	handler := func(name string, recursive, users *bool) v1.NodeRuntimeHandler {
		return v1.NodeRuntimeHandler{Name: name, Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: recursive, UserNamespaces: users}}
	}
	old := v1.NodeStatus{
		RuntimeHandlers: []v1.NodeRuntimeHandler{handler("old", &yes, &yes)},
		Features:        &v1.NodeFeatures{SupplementalGroupsPolicy: &yes},
	}
	for _, row := range []struct {
		name     string
		told     *runtimeapi.StatusResponse
		handlers []v1.NodeRuntimeHandler
		features *v1.NodeFeatures
	}{
		{"not asked yet", nil, old.RuntimeHandlers, old.Features},
		{"a runtime that knows none", &runtimeapi.StatusResponse{}, nil, old.Features},
		{
			"by name",
			&runtimeapi.StatusResponse{
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{
					{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}},
					{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
					{Name: "plain"},
				},
				Features: &runtimeapi.RuntimeFeatures{},
			},
			[]v1.NodeRuntimeHandler{handler("", &yes, &no), handler("plain", &no, &no), handler("runc", &no, &yes)},
			&v1.NodeFeatures{SupplementalGroupsPolicy: &no},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := status(t, &old, board(t, func(in *nodestatus.Inputs) { in.RuntimeStatus = row.told }))
			if diff := cmp.Diff(row.handlers, got.RuntimeHandlers); diff != "" {
				t.Errorf("handlers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.features, got.Features); diff != "" {
				t.Errorf("features (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeclaredFeatures: a feature that a stock kubelet declared on this node is
// removed. Otherwise the scheduler would send pods that need it.
func TestDeclaredFeatures(t *testing.T) {
	old := &v1.NodeStatus{DeclaredFeatures: []string{"InPlacePodLevelResourcesVerticalScaling"}}
	for _, row := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"B", "A", "B"}, []string{"A", "B"}},
	} {
		in := board(t, func(in *nodestatus.Inputs) { in.DeclaredFeatures = row.in })
		if diff := cmp.Diff(row.want, status(t, old, in).DeclaredFeatures); diff != "" {
			t.Errorf("declared features (-want +got):\n%s", diff)
		}
		if len(row.in) > 0 && row.in[0] != "B" {
			t.Error("the caller's list was sorted")
		}
	}
}

func TestStatusLeavesTheRest(t *testing.T) {
	old := v1.NodeStatus{
		Phase:           v1.NodeRunning,
		VolumesInUse:    []v1.UniqueVolumeName{"a"},
		VolumesAttached: []v1.AttachedVolume{{Name: "a", DevicePath: "/dev/a"}},
		Config:          &v1.NodeConfigStatus{Error: "x"},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: 1}},
	}
	before := old.DeepCopy()
	got := status(t, &old, board(t, func(in *nodestatus.Inputs) { in.Config.Kubelet.Port = 10251 }))
	if diff := cmp.Diff(*before, old); diff != "" {
		t.Errorf("the old status was changed (-before +after):\n%s", diff)
	}
	if got.Phase != old.Phase || cmp.Diff(old.VolumesInUse, got.VolumesInUse) != "" || cmp.Diff(old.VolumesAttached, got.VolumesAttached) != "" {
		t.Errorf("what is others' was changed: %+v", got)
	}
	if got.Config != nil || got.DaemonEndpoints.KubeletEndpoint.Port != 10251 {
		t.Errorf("config %v, port %d", got.Config, got.DaemonEndpoints.KubeletEndpoint.Port)
	}
}

func TestUpdate(t *testing.T) {
	registered, err := nodestatus.Initial(board(t))
	if err != nil {
		t.Fatal(err)
	}
	registered.Spec.PodCIDR, registered.Spec.PodCIDRs = "10.1.0.0/24", []string{"10.1.0.0/24"}
	registered.Spec.Unschedulable = true
	later := at.Add(10 * time.Second)
	for _, row := range []struct {
		name     string
		existing func(*v1.Node)
		change   func(*nodestatus.Inputs)
		changed  bool
		want     func(*v1.Node)
	}{
		{name: "heartbeats only"},
		{
			name:    "a pressure",
			change:  func(in *nodestatus.Inputs) { in.Pressures.Disk = true },
			changed: true,
		},
		{
			name: "labels of the platform are put back, others are not",
			existing: func(n *v1.Node) {
				n.Labels = map[string]string{"kubernetes.io/os": "beos", "kubernetes.io/hostname": "renamed"}
			},
			changed: true,
			want: func(n *v1.Node) {
				n.Labels = map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": goruntime.GOARCH, "kubernetes.io/hostname": "renamed"}
			},
		},
		{
			name:     "no labels at all",
			existing: func(n *v1.Node) { n.Labels = nil },
			changed:  true,
			want: func(n *v1.Node) {
				n.Labels = map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": goruntime.GOARCH}
			},
		},
		{
			name: "the address for a cloud provider",
			change: func(in *nodestatus.Inputs) {
				in.Config.CloudProvider, in.Config.NodeIPs = "external", ips("192.168.1.20")
			},
			changed: true,
			want:    func(n *v1.Node) { n.Annotations["alpha.kubernetes.io/provided-node-ip"] = "192.168.1.20" },
		},
		{
			name:     "the address for a cloud provider that is no more",
			existing: func(n *v1.Node) { n.Annotations["alpha.kubernetes.io/provided-node-ip"] = "192.168.1.20" },
			changed:  true,
			want:     func(n *v1.Node) { delete(n.Annotations, "alpha.kubernetes.io/provided-node-ip") },
		},
		{
			name: "a cloud provider and only a family", existing: func(n *v1.Node) { n.Annotations["alpha.kubernetes.io/provided-node-ip"] = "x" },
			change:  func(in *nodestatus.Inputs) { in.Config.CloudProvider, in.Config.NodeIPs = "external", ips("0.0.0.0") },
			changed: true,
			want:    func(n *v1.Node) { delete(n.Annotations, "alpha.kubernetes.io/provided-node-ip") },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			existing := registered.DeepCopy()
			if row.existing != nil {
				row.existing(existing)
			}
			in := board(t, func(in *nodestatus.Inputs) { in.Now = later })
			if row.change != nil {
				row.change(in)
			}
			want := existing.DeepCopy()
			if row.want != nil {
				row.want(want)
			}
			before := existing.DeepCopy()
			got, changed, err := nodestatus.Update(existing, in)
			if err != nil {
				t.Fatal(err)
			}
			if changed != row.changed {
				t.Errorf("changed is %t", changed)
			}
			if diff := cmp.Diff(before, existing); diff != "" {
				t.Errorf("the existing node was changed:\n%s", diff)
			}
			if !condition(t, &got.Status, v1.NodeReady).LastHeartbeatTime.Time.Equal(later) {
				t.Error("no heartbeat")
			}
			want.Status = got.Status
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUpdateKeepsTheProvidedAddress: the annotation stays while an interface is
// down for a moment.
func TestUpdateKeepsTheProvidedAddress(t *testing.T) {
	n := &v1.Node{}
	n.Annotations = map[string]string{"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"}
	got, _, err := nodestatus.Update(n, board(t, func(in *nodestatus.Inputs) {
		in.Config.CloudProvider, in.Config.NodeIPs = "external", ips("10.9.9.9")
	}))
	if err == nil || got.Annotations["alpha.kubernetes.io/provided-node-ip"] != "10.9.9.9" {
		t.Errorf("annotations %v, error %v", got.Annotations, err)
	}
}
