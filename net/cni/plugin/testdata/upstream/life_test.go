package upstream

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tinylet/tinylet/net/cni"
)

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// web are the ports of a container, as containerd says it.
var web = []portMapping{{8080, 80, "tcp", ""}, {5353, 53, "udp", ""}}

func TestLife(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newOwn(t, version)
			n.on(func() error { _, err := n.ValidateNetworkList(t.Context(), n.list); return err })
			c := n.newContainer(web...)
			r := n.add(c)
			if r.Version() != version {
				t.Errorf("the result is of version %s", r.Version())
			}
			n.agrees(c, r)
			n.checks(c, version)
			n.del(c)
			n.del(c)
			if left := n.remains(); left != nil {
				t.Errorf("left: %q", left)
			}
			if in := inside(t, c); in.link != nil {
				t.Errorf("left in the container: %+v", in)
			}
		})
	}
}

// checks has CHECK succeed, and fail when the interface is gone.
func (n *node) checks(c *container, version string) {
	n.Helper()
	check := func() (err error) {
		n.on(func() error { err = n.CheckNetworkList(n.Context(), n.list, c.RuntimeConf); return nil })
		return err
	}
	if version < "0.4.0" {
		if err := check(); err == nil {
			n.Error("CHECK of a version that has none")
		}
		return
	}
	if err := check(); err != nil {
		n.Error(err)
	}
	h := handle(n, c.ns)
	defer h.Close()
	l, err := h.LinkByName("eth0")
	if err != nil {
		n.Fatal(err)
	}
	if err := h.LinkSetDown(l); err != nil {
		n.Fatal(err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "down") {
		n.Errorf("CHECK of an interface that is down: %v", err)
	}
}

// handle speaks to the kernel for a namespace, by a library of others.
func handle(t testing.TB, ns *os.File) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// seen is what is in a container's namespace, as the kernel says it.
type seen struct {
	link      *netlink.LinkAttrs // nil if there is none
	addresses []string           // without those of the link alone
	routes    []string
	loopback  bool // is up
}

func inside(t testing.TB, c *container) (s seen) {
	t.Helper()
	h := handle(t, c.ns)
	defer h.Close()
	l, err := h.LinkByName("eth0")
	if none := (netlink.LinkNotFoundError{}); errors.As(err, &none) {
		return s
	}
	if err != nil {
		t.Fatal(err)
	}
	s.link = l.Attrs()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	s.loopback = lo.Attrs().Flags&1 != 0
	addresses, err := h.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			s.addresses = append(s.addresses, a.IPNet.String())
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteList(l, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() {
				s.routes = append(s.routes, fmt.Sprintf("%v by %v", r.Dst, r.Gw))
			}
		}
	}
	slices.Sort(s.routes)
	return s
}

// agrees holds a result against what the kernel has.
func (n *node) agrees(c *container, r types.Result) {
	n.Helper()
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		n.Fatal(err)
	}
	in := inside(n, c)
	if len(result.Interfaces) != 3 || len(result.IPs) != 2 || len(result.Routes) != 2 || in.link == nil {
		n.Fatalf("got %v, and %+v is there", result, in)
	}
	eth0 := result.Interfaces[2]
	if eth0.Name != "eth0" || eth0.Sandbox != c.NetNS || eth0.Mac != in.link.HardwareAddr.String() {
		n.Errorf("the interface is %v, and %+v is there", eth0, in.link)
	}
	if in.link.Flags&1 == 0 || !in.loopback {
		n.Errorf("eth0 is %v, and the loopback up: %t", in.link.Flags, in.loopback)
	}
	var addresses, defaults []string
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.String())
		if *ip.Interface != 2 {
			n.Errorf("%v is on interface %d", &ip.Address, *ip.Interface)
		}
	}
	for i, route := range result.Routes {
		defaults = append(defaults, fmt.Sprintf("%v by %v", &route.Dst, route.GW))
		if !result.IPs[i].Gateway.Equal(route.GW) {
			n.Errorf("the gateway of %v is %v", &result.IPs[i].Address, result.IPs[i].Gateway)
		}
	}
	if diff := cmp.Diff(addresses, in.addresses); diff != "" {
		n.Errorf("addresses (-told +there):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0.0.0.0/0 by " + gateway4, "::/0 by " + gateway6}, defaults); diff != "" {
		n.Errorf("default routes (-want +told):\n%s", diff)
	}
	for _, want := range append(defaults, "10.88.0.0/16 by <nil>", "fd00:88::/64 by <nil>") {
		if !slices.Contains(in.routes, want) {
			n.Errorf("there is no route %s but %q", want, in.routes)
		}
	}
	n.joined(result)
}

// joined sees that the other end is where the result says, a port of the bridge.
func (n *node) joined(result *types100.Result) {
	n.Helper()
	h := handle(n, n.host)
	defer h.Close()
	bridge, err := h.LinkByName(result.Interfaces[0].Name)
	if err != nil {
		n.Fatal(err)
	}
	end, err := h.LinkByName(result.Interfaces[1].Name)
	if err != nil {
		n.Fatal(err)
	}
	if end.Attrs().MasterIndex != bridge.Attrs().Index || end.Attrs().HardwareAddr.String() != result.Interfaces[1].Mac ||
		bridge.Attrs().HardwareAddr.String() != result.Interfaces[0].Mac {
		n.Errorf("%v, and there is %+v at %+v", result.Interfaces, end.Attrs(), bridge.Attrs())
	}
}

// remains are the ends of containers' interfaces in the node.
func (n *node) remains() (names []string) {
	n.Helper()
	h := handle(n, n.host)
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		n.Fatal(err)
	}
	for _, l := range links {
		if l.Type() == "veth" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// TestCollection has the runtime forget one of three, and libcni two of them.
func TestCollection(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newOwn(t, version)
			kept, stale, forgotten := n.newContainer(), n.newContainer(web...), n.newContainer()
			n.add(kept)
			n.add(stale)
			// Of this one libcni itself knows nothing, so that only GC finds it.
			cache := n.CNIConfig
			n.CNIConfig = libcni.NewCNIConfigWithCacheDir(cache.Path, t.TempDir(), nil)
			n.add(forgotten)
			n.CNIConfig = cache
			valid := []types.GCAttachment{{ContainerID: kept.ContainerID, IfName: "eth0"}}
			n.on(func() error {
				return n.GCNetworkList(t.Context(), n.list, &libcni.GCArgs{ValidAttachments: valid})
			})
			want := 1
			if version < "1.1.0" {
				want = 2
			}
			if left := n.remains(); len(left) != want {
				t.Errorf("left: %q, want %d", left, want)
			}
			for c, is := range map[*container]bool{kept: true, stale: false, forgotten: version < "1.1.0"} {
				if in := inside(t, c); (in.link != nil) != is {
					t.Errorf("in %s there is %+v", c.ContainerID, in)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for _, version := range versions {
		n := newOwn(t, version)
		n.on(func() error { return n.GetStatusNetworkList(t.Context(), n.list) })
	}
}

// TestCodes has libcni know the errors that a runtime decides by.
func TestCodes(t *testing.T) {
	for name, row := range map[string]struct {
		list string
		code cni.Code
		want string
	}{
		"exhausted": {`"ranges":[{"subnet":"10.88.0.0/30"}]`, cni.CodeTryAgainLater, "no free address"},
		"refused":   {`"refuse":"give the node a network"`, cni.CodeInvalidConfig, "give the node a network"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, ownFolder(t), func(dir string) []byte {
				return []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"tinylet-cni","bridge":"pods0","stateDir":"` + dir + `/state",` + row.list + `}]}`)
			})
			add := func() (err error) {
				c := n.newContainer()
				n.on(func() error { _, err = n.AddNetworkList(t.Context(), n.list, c.RuntimeConf); return nil })
				return err
			}
			if row.code == cni.CodeTryAgainLater {
				if err := add(); err != nil {
					t.Fatal(err)
				}
			}
			err := add()
			var e *types.Error
			if !errors.As(err, &e) || e.Code != uint(row.code) || !strings.Contains(e.Details, row.want) {
				t.Errorf("got %#v", err)
			}
		})
	}
}
