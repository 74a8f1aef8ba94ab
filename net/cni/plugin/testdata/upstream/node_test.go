package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// The networks of containers.
const (
	range4, gateway4 = "10.88.0.0/16", "10.88.0.1"
	range6, gateway6 = "fd00:88::/64", "fd00:88::1"
)

// node is a node in a network namespace of its own, whose runtime calls the
// plugins of one list.
type node struct {
	testing.TB
	*libcni.CNIConfig
	host       *os.File
	list       *libcni.NetworkConfigList
	containers int
}

// newNode is one with a folder of plugins. What they keep is in dir.
func newNode(t testing.TB, folder string, list func(dir string) []byte) *node {
	t.Helper()
	dir := t.TempDir()
	l, err := libcni.NetworkConfFromBytes(list(dir))
	if err != nil {
		t.Fatal(err)
	}
	return &node{
		TB: t, host: nstest.New(t), list: l,
		CNIConfig: libcni.NewCNIConfigWithCacheDir([]string{folder}, filepath.Join(dir, "cache"), nil),
	}
}

// newOwn is a node of tinylet-cni.
func newOwn(t testing.TB, version string) *node {
	t.Helper()
	return newNode(t, ownFolder(t), func(dir string) []byte {
		c := cni.Default()
		c.Bridge, c.Masquerade, c.StateDir = "pods0", true, filepath.Join(dir, "state")
		c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix(range4)}, {Prefix: netip.MustParsePrefix(range6)}}
		data, err := cni.Conflist(c, "pods")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Replace(data, []byte(cni.DefaultVersion), []byte(version), 1)
	})
}

// newOther is a node of bridge, host-local and portmap, set up for the same.
func newOther(t testing.TB) *node {
	t.Helper()
	return newNode(t, otherFolder(t), func(dir string) []byte {
		return []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[
			{"type":"bridge","bridge":"pods0","isGateway":true,"ipMasq":true,"ipMasqBackend":"nftables","hairpinMode":true,
			 "ipam":{"type":"host-local","dataDir":"` + filepath.Join(dir, "state") + `",
			  "ranges":[[{"subnet":"` + range4 + `"}],[{"subnet":"` + range6 + `"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
			{"type":"portmap","backend":"nftables","capabilities":{"portMappings":true}}]}`)
	})
}

// on runs something in the node: what it executes itself is there as well.
func (n *node) on(do func() error) {
	n.Helper()
	if err := netns.Do(n.host, do); err != nil {
		n.Fatal(err)
	}
}

// container is one with its network namespace, as containerd tells of it.
type container struct {
	*libcni.RuntimeConf
	ns *os.File
}

// portMapping is containerd's, whose fields have no names for JSON.
type portMapping struct {
	HostPort, ContainerPort int32
	Protocol, HostIP        string
}

func (n *node) newContainer(ports ...portMapping) *container {
	n.Helper()
	n.containers++
	ns := nstest.New(n)
	id := fmt.Sprintf("%064x", n.containers)
	return &container{ns: ns, RuntimeConf: &libcni.RuntimeConf{
		ContainerID: id,
		NetNS:       fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()),
		IfName:      "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", fmt.Sprintf("web-%d", n.containers)},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
			{"K8S_POD_UID", fmt.Sprintf("uid-%d", n.containers)},
		},
		CapabilityArgs: map[string]any{"portMappings": ports},
	}}
}

func (n *node) add(c *container) (r types.Result) {
	n.Helper()
	n.on(func() (err error) {
		r, err = n.AddNetworkList(context.Background(), n.list, c.RuntimeConf)
		return err
	})
	return r
}

func (n *node) del(c *container) {
	n.Helper()
	n.on(func() error { return n.DelNetworkList(context.Background(), n.list, c.RuntimeConf) })
}
