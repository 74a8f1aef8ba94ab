package criconfig

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/pod"
)

var update = flag.Bool("update", false, "write the golden files")

// board is the node of the golden files.
func board() *Node {
	return &Node{
		HostIPs:       []string{"192.0.2.10"},
		ClusterDNS:    []string{"10.96.0.10"},
		ClusterDomain: "cluster.local",
		Resolv: ParseResolvConf([]byte("# made by hand\nsearch example.com lan.\n" +
			"nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions timeout:1\n")),
		SeccompProfileRoot: "/var/lib/kubelet/seccomp",
		MemoryCapacity:     512 << 20, MemoryUnreserved: 416 << 20,
		Allocatable: v1.ResourceList{
			v1.ResourceCPU:              resource.MustParse("4"),
			v1.ResourceMemory:           resource.MustParse("400Mi"),
			v1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
		},
		CPUCFSQuota:    true,
		SwapAccounting: true,
		HugePageSizes:  []string{"2MB", "1GB"},
	}
}

func readPod(t *testing.T, file string) *v1.Pod {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(raw, p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

// inputFor is a container that had three before it, of an image that runs as
// root.
func inputFor(p *v1.Pod, c *v1.Container, n *Node) ContainerInput {
	dir := "/var/lib/kubelet/pods/" + string(p.UID)
	in := ContainerInput{
		Pod: p, Container: c, Node: n,
		RestartCount:       3,
		Image:              &runtimeapi.Image{Id: "sha256:feed"},
		PodIPs:             []string{"10.244.0.7"},
		Volumes:            map[string]string{},
		HostsFile:          dir + "/etc-hosts",
		TerminationMessage: dir + "/containers/" + c.Name + "/0123abcd",
		Backoff:            20 * time.Second,
	}
	if p.Spec.HostNetwork {
		in.PodIPs = nil
	}
	for _, v := range p.Spec.Volumes {
		in.Volumes[v.Name] = dir + "/volumes/kubernetes.io~empty-dir/" + v.Name
		if v.HostPath != nil {
			in.Volumes[v.Name] = v.HostPath.Path
		}
	}
	return in
}

// withObjects adds what the golden pods refer to, on a runtime that can do
// all.
func withObjects(t *testing.T, in ContainerInput) ContainerInput {
	t.Helper()
	dir := "/var/lib/kubelet/pods/" + string(in.Pod.UID)
	in.ConfigMaps = map[string]*v1.ConfigMap{"settings": {Data: map[string]string{"LEVEL": "2", "with.dots-and": "dashes"}}}
	in.Secrets = map[string]*v1.Secret{"login": {Data: map[string][]byte{"PASSWORD": []byte("$(LEVEL)"), "LEVEL": []byte("3")}}}
	in.ReadEnvFile = func(volume, path string) ([]byte, error) {
		if volume+"/"+path != "made/sub/env" {
			return nil, fs.ErrNotExist
		}
		return []byte("# made\nA='1'\nLONG='over\n two lines' # and so on\n"), nil
	}
	in.RecursiveReadOnly, in.Userns = true, goldenUsers()
	in.ImageVolumes = map[string]*runtimeapi.ImageSpec{}
	for _, v := range in.Pod.Spec.Volumes {
		if v.Image != nil {
			in.ImageVolumes[v.Name] = &runtimeapi.ImageSpec{Image: v.Image.Reference}
		}
	}
	sub, err := SubPaths(in)
	if err != nil {
		t.Fatal(err)
	}
	in.SubPaths = map[int]string{}
	for i := range sub {
		in.SubPaths[i] = filepath.Join(dir, "volume-subpaths", in.Container.VolumeMounts[i].Name, in.Container.Name, strconv.Itoa(i))
	}
	return in
}

func goldenUsers() *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: 131072, ContainerId: 0, Length: 65536}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// TestGolden pins whole configs. What a kubelet of Kubernetes 1.36.3 makes
// of the same pods on the same node differs only where testdata/README.md
// says.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pods: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			got := render(t, readPod(t, file), board())
			golden := filepath.Join("testdata", name+".golden.json")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got, -update writes it anew)\n%s", diff)
			}
		})
	}
}

func render(t *testing.T, p *v1.Pod, n *Node) string {
	t.Helper()
	parts := map[string]json.RawMessage{}
	put := func(name string, m proto.Message, err error) {
		if err != nil {
			t.Fatal(err)
		}
		raw, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		parts[name] = raw
	}
	sandbox, err := SandboxConfig(SandboxInput{Pod: p, Attempt: 2, Node: n, Userns: goldenUsers()})
	put("sandbox", sandbox, err)
	for c := range pod.Containers(&p.Spec) {
		in := withObjects(t, inputFor(p, c, n))
		for _, e := range p.Spec.EphemeralContainers {
			if e.Name == c.Name && e.TargetContainerName != "" {
				in.TargetID = "id of " + e.TargetContainerName
			}
		}
		config, err := ContainerConfig(in)
		put("container "+c.Name, config, err)
	}
	resources, err := json.Marshal(PodResources(p, n))
	if err != nil {
		t.Fatal(err)
	}
	parts["podResources"] = resources
	ips := []string{"10.244.0.7"}
	hosts, err := HostsFile(p, n, ips, []byte("127.0.0.1 localhost board\n"))
	if err != nil {
		t.Fatal(err)
	}
	if parts["hosts"], err = json.Marshal(string(hosts)); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}
