// Package libcni has the library that container runtimes call network plugins
// with drive tinylet-cni, over a network of files. It is a module of its own,
// since tinylet has no use for that library:
//
//	cd net/cni/testdata/libcni && go test .
package libcni

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
)

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// binaries is the folder that the plugin was built into.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "libcni")
	if err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, cni.Type), "./plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	binaries = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// runtime is a container runtime with an empty cache and an empty network.
type runtime struct {
	*libcni.CNIConfig
	state string
}

func newRuntime(t *testing.T) *runtime {
	t.Helper()
	r := &runtime{libcni.NewCNIConfigWithCacheDir([]string{binaries}, t.TempDir(), nil), t.TempDir()}
	t.Setenv("CNI_TEST_STATE", r.state)
	return r
}

// last is the last call of a kind, whose JSON is read into what is given.
func (r *runtime) last(t *testing.T, kind string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.state, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	call, what, _ := strings.Cut(lines[len(lines)-1], " ")
	if call != kind {
		t.Fatalf("the last call is %s, want %s", call, kind)
	}
	if err := json.Unmarshal([]byte(what), into); err != nil {
		t.Fatal(err)
	}
}

// attached are the containers that are.
func (r *runtime) attached(t *testing.T) (ids []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.state, "at,*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ids = append(ids, strings.Split(filepath.Base(file), ",")[2])
	}
	return ids
}

func config() cni.Config {
	c := cni.Default()
	c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.0.0/24")}, {Prefix: netip.MustParsePrefix("fd00::/64")}}
	c.Direct = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	c.MTU, c.Masquerade = 1400, true
	return c
}

func list(t *testing.T, version string) *libcni.NetworkConfigList {
	t.Helper()
	data, err := cni.Conflist(config(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	l, err := libcni.NetworkConfFromBytes(bytes.Replace(data, []byte(cni.DefaultVersion), []byte(version), 1))
	if err != nil {
		t.Fatal(err)
	}
	if l.CNIVersion != version {
		t.Fatalf("libcni takes version %s, want %s", l.CNIVersion, version)
	}
	return l
}

// portMapping and bandwidth are those of containerd, whose fields have no names
// for JSON.
type portMapping struct {
	HostPort, ContainerPort int32
	Protocol, HostIP        string
}

type bandwidth struct{ IngressRate, IngressBurst, EgressRate, EgressBurst uint64 }

// container is what containerd says of a pod.
func container(id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: id,
		NetNS:       "/run/netns/" + id,
		IfName:      "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", "web-0"},
			{"K8S_POD_UID", "0123-4567"},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
		},
		CapabilityArgs: map[string]any{
			"portMappings":                      []portMapping{{8080, 80, "tcp", "127.0.0.1"}},
			"bandwidth":                         bandwidth{IngressRate: 1000000, IngressBurst: 1<<32 - 1},
			"mac":                               "0a:58:0a:2a:00:07",
			"ips":                               []string{"10.42.0.7/24", "fd00::7"},
			"io.kubernetes.cri.pod-annotations": map[string]string{"a": "b"},
		},
	}
}

func TestVersions(t *testing.T) {
	r := newRuntime(t)
	info, err := r.GetVersionInfo(t.Context(), cni.Type)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(versions, info.SupportedVersions()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, v := range versions {
		capabilities, err := r.ValidateNetworkList(t.Context(), list(t, v))
		slices.Sort(capabilities)
		if err != nil || !slices.Equal(capabilities, []string{"bandwidth", "ips", "mac", "portMappings"}) {
			t.Errorf("%s: %v, %v", v, capabilities, err)
		}
	}
}

func TestLifeOfAnAttachment(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			r, l, c := newRuntime(t), list(t, v), container("c1")
			added, err := r.AddNetworkList(t.Context(), l, c)
			if err != nil {
				t.Fatal(err)
			}
			if added.Version() != v {
				t.Errorf("the result is of version %s", added.Version())
			}
			if diff := cmp.Diff(wanted(v), heard(t, added)); diff != "" {
				t.Errorf("the result (-want +got):\n%s", diff)
			}
			r.sees(t, v)

			err = r.CheckNetworkList(t.Context(), l, c)
			if v < "0.4.0" {
				if err == nil {
					t.Error("CHECK of a version that has none")
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				r.remembers(t, v)
			}
			for range 2 {
				if err := r.DelNetworkList(t.Context(), l, c); err != nil {
					t.Fatal(err)
				}
			}
			var a cni.Attachment
			r.last(t, "teardown", &a)
			if a.Config.Name != "pods" || a.Ports == nil || r.attached(t) != nil {
				t.Errorf("%v are attached after DEL of %+v", r.attached(t), a)
			}
		})
	}
}

// sees holds what the network was handed against what the runtime has said.
func (r *runtime) sees(t *testing.T, version string) {
	t.Helper()
	c := config()
	c.CNIVersion, c.Name = version, "pods"
	want := cni.Attachment{
		ID: cni.ID{ContainerID: "c1", Interface: "eth0"}, NetNS: "/run/netns/c1",
		Pod:       cni.Pod{Namespace: "default", Name: "web-0", UID: "0123-4567"},
		Config:    c,
		Ports:     []cni.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: netip.MustParseAddr("127.0.0.1")}},
		Bandwidth: cni.Bandwidth{IngressRate: 1000000, IngressBurst: 1<<32 - 1},
		IPs:       []netip.Addr{netip.MustParseAddr("10.42.0.7"), netip.MustParseAddr("fd00::7")},
		MAC:       []byte{0x0a, 0x58, 0x0a, 0x2a, 0, 7},
	}
	var got cni.Attachment
	r.last(t, "setup", &got)
	if diff := cmp.Diff(want, got, comparers); diff != "" {
		t.Errorf("the attachment (-want +got):\n%s", diff)
	}
}

// remembers holds the result that CHECK was handed against that of ADD.
func (r *runtime) remembers(t *testing.T, version string) {
	t.Helper()
	var got cni.Result
	r.last(t, "check", &got)
	if len(got.Interfaces) != 2 || len(got.IPs) != 2 || len(got.Routes) != 2 {
		t.Fatalf("got %+v", got)
	}
	eth0, ip, route := got.Interfaces[1], got.IPs[0], got.Routes[0]
	if eth0.Name != "eth0" || eth0.Sandbox != "/run/netns/c1" || eth0.MAC.String() != "0a:58:0a:2a:00:07" || (eth0.MTU == 1400) != (version == "1.1.0") {
		t.Errorf("the interface is %+v", eth0)
	}
	if ip.Interface != 1 || ip.Address != netip.MustParsePrefix("10.42.0.7/24") || ip.Gateway != netip.MustParseAddr("10.42.0.1") {
		t.Errorf("the address is %+v", ip)
	}
	if route.Dst != netip.MustParsePrefix("0.0.0.0/0") || route.Gateway != netip.MustParseAddr("10.42.0.1") {
		t.Errorf("the route is %+v", route)
	}
	if last := got.Routes[1]; version == "1.1.0" && last != (cni.Route{Dst: netip.MustParsePrefix("::/0"), MTU: 1300, AdvMSS: 1260, Priority: 7, Table: 100, Scope: 253}) {
		t.Errorf("the last route is %+v", last)
	}
}

var comparers = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// wanted is a result as a person would write it down.
func wanted(version string) []string {
	family := [2]string{"", ""}
	mtu, more := [2]string{"", ""}, ""
	if version < "1.0.0" {
		family = [2]string{" version 4", " version 6"}
	}
	if version == "1.1.0" {
		mtu, more = [2]string{" mtu 1500", " mtu 1400"}, " mtu 1300 advmss 1260 priority 7 table 100 scope 253"
	}
	return []string{
		"interface tinylet0 02:00:00:00:00:01" + mtu[0] + " in ",
		"interface eth0 0a:58:0a:2a:00:07" + mtu[1] + " in /run/netns/c1",
		"ip 10.42.0.7/24 by 10.42.0.1 on 1" + family[0],
		"ip fd00::7/64 by <nil> on 1" + family[1],
		"route 0.0.0.0/0 by 10.42.0.1",
		"route ::/0 by <nil>" + more,
	}
}
