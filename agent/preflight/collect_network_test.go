package preflight

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	agentnetwork "github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
)

const (
	loopback     = `{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}`
	loopbackList = `{"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}`
)

func TestNetworkConfigurations(t *testing.T) {
	ours := func(name string) string {
		c := cni.Default()
		c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.3.0/24")}}
		data, err := cni.Conflist(c, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const folder = "etc/cni/net.d/"
	for _, tt := range []struct {
		name       string
		files      map[string]string
		configured string
		mode       string
		ours       bool
		others     []string
		loopbacks  []string
		pods       string
	}{
		{name: "nothing", mode: "bridge"},
		{name: "ours", files: map[string]string{folder + agentnetwork.FileName: ours("tinylet")}, mode: "bridge", ours: true, pods: "10.42.3.0/24"},
		{name: "of our name, of another's making", files: map[string]string{folder + agentnetwork.FileName: ours("mine")}, mode: "cni", others: []string{agentnetwork.FileName}},
		{name: "of our name, of another plugin", files: map[string]string{folder + agentnetwork.FileName: "{}"}, mode: "cni", others: []string{agentnetwork.FileName}},
		{name: "damaged", files: map[string]string{folder + agentnetwork.FileName: "{"}, mode: "bridge", ours: true},
		{name: "others", files: map[string]string{folder + "b.conf": "{}", folder + "a.json": "", folder + "README": "", folder + ".tinylet-1": ""}, mode: "cni", others: []string{"a.json", "b.conf"}},
		{name: "others beside ours", files: map[string]string{folder + agentnetwork.FileName: ours("tinylet"), folder + "05-x.conflist": "{}"}, configured: "bridge", mode: "bridge", ours: true, others: []string{"05-x.conflist"}, pods: "10.42.3.0/24"},
		{name: "a distribution's loopback", files: map[string]string{folder + "99-loopback.conf": loopback, folder + "200-loopback.conflist": loopbackList}, mode: "bridge", others: []string{"200-loopback.conflist", "99-loopback.conf"}, loopbacks: []string{"200-loopback.conflist", "99-loopback.conf"}},
		{name: "a loopback beside others", files: map[string]string{folder + "99-loopback.conf": loopback, folder + "a.conf": "{}"}, mode: "cni", others: []string{"99-loopback.conf", "a.conf"}, loopbacks: []string{"99-loopback.conf"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Root: string(files(t, tt.files)), Network: config.Network{Mode: tt.configured}}
			o.setDefaults()
			n := tree(o.Root).network(&o, container.Info{})
			if n.Mode != tt.mode || n.Ours != tt.ours || n.Err != "" || n.Bridge != "tinylet0" {
				t.Errorf("network %+v", n)
			}
			if diff := cmp.Diff(tt.others, n.Others); diff != "" {
				t.Errorf("others (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.loopbacks, n.Loopbacks); diff != "" {
				t.Errorf("loopbacks (-want +got):\n%s", diff)
			}
			if got := listed(n.Pods); got != tt.pods {
				t.Errorf("networks %s, want %s", got, tt.pods)
			}
		})
	}
	o := Options{Root: string(files(t, map[string]string{"etc/cni/net.d": "a file"}))}
	o.setDefaults()
	if n := tree(o.Root).network(&o, container.Info{}); n.Err == "" {
		t.Errorf("a file in the folder's place: %+v", n)
	}
}

// TestHostWithoutNFTables: with a kernel without nf_tables, all facts but the rules
// are known.
func TestHostWithoutNFTables(t *testing.T) {
	ns := nstest.New(t)
	var got HostNetwork
	if err := nstest.WithoutNetfilter(ns, func() error { got = hostNetwork("tinylet0"); return nil }); err != nil {
		t.Fatal(err)
	}
	if !got.Known || got.Err != "" || got.RulesKnown || got.RulesErr == "" || got.BridgeFamily != Unknown {
		t.Errorf("the host's network is %+v", got)
	}
}

func TestPluginLink(t *testing.T) {
	const folder, name = "/opt/cni/bin", "tinylet-cni"
	for _, tt := range []struct {
		name   string
		make   func(root string) error
		state  PluginState
		target string
	}{
		{"nothing", func(string) error { return nil }, PluginMissing, ""},
		{"a link within the tree", func(root string) error { return os.Symlink("/usr/bin/tinylet", filepath.Join(root, folder, name)) }, PluginInstalled, "/usr/bin/tinylet"},
		{"a relative link", func(root string) error {
			return os.Symlink("../../../usr/bin/tinylet", filepath.Join(root, folder, name))
		}, PluginInstalled, "../../../usr/bin/tinylet"},
		{"a link to nothing", func(root string) error { return os.Symlink("/usr/bin/gone", filepath.Join(root, folder, name)) }, PluginDangling, "/usr/bin/gone"},
		{"a link to itself", func(root string) error { return os.Symlink(name, filepath.Join(root, folder, name)) }, PluginDangling, name},
		{"a program", func(root string) error { return os.WriteFile(filepath.Join(root, folder, name), nil, 0o755) }, PluginInstalled, ""},
		{"no program", func(root string) error { return os.WriteFile(filepath.Join(root, folder, name), nil, 0o644) }, PluginNotExecutable, ""},
		{"a folder", func(root string) error { return os.Mkdir(filepath.Join(root, folder, name), 0o755) }, PluginNotExecutable, ""},
		{"a link to no program", func(root string) error { return os.Symlink("/usr/bin/data", filepath.Join(root, folder, name)) }, PluginNotExecutable, "/usr/bin/data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := files(t, map[string]string{"opt/cni/bin/other": "", "usr/bin/tinylet": "", "usr/bin/data": ""})
			if err := os.Chmod(root.path("usr/bin/tinylet"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := tt.make(string(root)); err != nil {
				t.Fatal(err)
			}
			want := Plugin{Path: folder + "/" + name, State: tt.state, Target: tt.target, Writable: true}
			if diff := cmp.Diff(want, root.plugin([]string{folder}, name)); diff != "" {
				t.Errorf("plugin (-want +got):\n%s", diff)
			}
		})
	}
}

// in runs programs in a network namespace, one per line.
func in(t *testing.T, ns *os.File, lines string) {
	t.Helper()
	if err := netns.Do(ns, func() error {
		for line := range strings.Lines(lines) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", strings.TrimSpace(line), err, out)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: it makes what is looked for", program)
	}
}

func TestNetworksOfTheHost(t *testing.T) {
	ns := nstest.New(t)
	need(t, "ip")
	in(t, ns, `ip link set lo up
ip link add tinylet0 type bridge
ip link add cni0 type bridge
ip link add eth0 type veth peer name far0
ip link set tinylet0 up
ip link set cni0 up
ip link set eth0 up
ip link set far0 up
ip addr add 10.88.0.1/24 dev tinylet0
ip addr add 10.88.0.1/16 dev cni0
ip addr add 192.0.2.1/24 dev eth0
ip addr add fd00:1::1/64 dev eth0 nodad
ip route add default via 192.0.2.2
ip route add 10.99.0.0/16 via 192.0.2.3
ip route add 10.88.7.0/24 dev tinylet0
ip route add blackhole 10.77.0.0/16
ip route add 203.0.113.0/24 via 192.0.2.3 table 100
`)
	var got HostNetwork
	if err := netns.Do(ns, func() error { got = hostNetwork("tinylet0"); return nil }); err != nil {
		t.Fatal(err)
	}
	if got.BridgeFamily == Unknown {
		t.Error("nobody knows whether nftables has the family bridge")
	}
	want := HostNetwork{Known: true, RulesKnown: true, BridgeFamily: got.BridgeFamily, Used: []UsedNetwork{
		bridge("10.88.0.0/16", "cni0"), address("192.0.2.0/24", "eth0"), address("fd00:1::/64", "eth0"), route("10.99.0.0/16", "eth0"),
	}}
	equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Errorf("host's network (-want +got):\n%s", diff)
	}
}

// A bridge that is the uplink is not left from an earlier network, and no finding
// recommends to delete it.
func TestBridgeToTheWorld(t *testing.T) {
	ns := nstest.New(t)
	need(t, "ip")
	in(t, ns, `ip link add br0 type bridge
ip link add eth0 type veth peer name far0
ip link set eth0 master br0
ip link set eth0 up
ip link set far0 up
ip link set br0 up
ip addr add 10.88.0.7/16 dev br0
ip route add default via 10.88.0.1
`)
	var got HostNetwork
	if err := netns.Do(ns, func() error { got = hostNetwork("tinylet0"); return nil }); err != nil {
		t.Fatal(err)
	}
	f := healthy()
	f.Network.Host = got
	for _, finding := range checkNetwork(&f) {
		if finding.ID == "network-overlap" && finding.Level != Fail || finding.ID == "second-bridge" && finding.Level != OK {
			t.Errorf("%+v", finding)
		}
	}
	if diff := cmp.Diff([]UsedNetwork{address("10.88.0.0/16", "br0")}, got.Used, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
}

func TestDroppingChains(t *testing.T) {
	need(t, "nft")
	const forward = "type filter hook forward priority 0;"
	for _, tt := range []struct {
		name, rules string
		want        []DroppingChain
	}{
		{name: "no rules"},
		{name: "Docker", rules: "table ip filter { chain DOCKER-USER { return; }; chain FORWARD { " + forward + " policy drop; jump DOCKER-USER; iifname docker0 accept; }; }", want: []DroppingChain{{"ip", "filter", "FORWARD"}}},
		{name: "Docker, with a rule for the bridge", rules: "table ip filter { chain DOCKER-USER { iifname tinylet0 accept; }; chain FORWARD { " + forward + " policy drop; jump DOCKER-USER; }; }"},
		{name: "firewalld", rules: "table inet firewalld { chain filter_FORWARD { " + forward + " policy accept; ct state established accept; iifname eth0 accept; reject with icmpx admin-prohibited; }; }", want: []DroppingChain{{"inet", "firewalld", "filter_FORWARD"}}},
		{name: "a last rule that counts and drops", rules: "table ip6 t { chain c { " + forward + " counter log drop; }; }", want: []DroppingChain{{"ip6", "t", "c"}}},
		{name: "a rule that drops, but not the last", rules: "table inet t { chain c { " + forward + " ip saddr 192.0.2.1 drop; counter; }; }"},
		{name: "a last rule that drops some", rules: "table inet t { chain c { " + forward + " ip saddr 192.0.2.1 drop; }; }"},
		{name: "a last rule that takes all", rules: "table inet t { chain c { " + forward + " accept; }; }"},
		{name: "a last rule that jumps", rules: "table inet t { chain d { }; chain c { " + forward + " jump d; }; }"},
		{name: "other hooks", rules: "table inet t { chain i { type filter hook input priority 0; policy drop; }; chain o { type filter hook output priority 0; policy drop; }; }"},
		{name: "a bridge's", rules: "table bridge t { chain c { " + forward + " policy drop; }; }"},
		{name: "several", rules: "table inet z { chain c { " + forward + " policy drop; }; }\ntable inet a { chain y { " + forward + " policy drop; }; chain x { " + forward + " policy drop; }; }", want: []DroppingChain{{"inet", "a", "x"}, {"inet", "a", "y"}, {"inet", "z", "c"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := nstest.New(t)
			var got []DroppingChain
			if err := netns.Do(ns, func() error {
				load := exec.Command("nft", "-f", "-")
				load.Stdin = strings.NewReader(tt.rules)
				if out, err := load.CombinedOutput(); err != nil {
					t.Errorf("load rules: %v: %s", err, out)
				}
				var err error
				got, err = droppingChains("tinylet0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

// The network that tinylet creates is no finding.
func TestOwnNetworkIsNoFinding(t *testing.T) {
	ns := nstest.New(t)
	var got HostNetwork
	if err := netns.Do(ns, func() error {
		h, err := link.Open()
		if err != nil {
			return err
		}
		defer h.Close()
		if _, err := h.EnsureBridge(link.Bridge{Name: "tinylet0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.88.0.1/24")}}); err != nil {
			return err
		}
		table, err := nft.Open()
		if err != nil {
			return err
		}
		defer table.Close()
		_, err = table.Ensure(nft.Base{Bridge: "tinylet0", Pods: []netip.Prefix{pods4}, Masquerade: true}, nil)
		got = hostNetwork("tinylet0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !got.Known || !got.RulesKnown || got.Used != nil || got.Dropping != nil {
		t.Errorf("host's network %+v", got)
	}
}

// Facts that the kernel does not report are unknown.
func TestHostNetworkWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give up root's rights")
	}
	var got HostNetwork
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and the thread ends with this
		var none [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err = unix.Capset(&header, &none[0]); err == nil {
			got = hostNetwork("tinylet0")
		}
	}()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	if got.RulesKnown || !strings.Contains(got.RulesErr, "not permitted") || !got.Known || got.Err != "" {
		t.Errorf("host's network %+v", got)
	}
}

func TestIPv6ForwardIsRead(t *testing.T) {
	for text, want := range map[string]Tristate{"0\n": No, "1\n": Yes, "": Unknown} {
		root := files(t, map[string]string{"proc/sys/net/ipv6/conf/all/forwarding": text})
		if f := Collect(t.Context(), Options{Root: string(root), Endpoint: "unix:///nowhere"}); f.IPv6Forward != want {
			t.Errorf("%q: %v", text, f.IPv6Forward)
		}
	}
}

// For a tree other than / nothing is read from the kernel of this machine.
func TestTreeHasNoHostNetwork(t *testing.T) {
	f := Collect(t.Context(), Options{Root: t.TempDir(), Endpoint: "unix:///nowhere"})
	if f.Network.Host.Known || f.Network.Host.Err+f.Network.Host.RulesErr != "" || f.Network.Mode != config.NetworkBridge || f.Network.ConfigFolder != config.DefaultConfigFolder {
		t.Errorf("network %+v", f.Network)
	}
}
