package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// sampleNet has all fields.
func sampleNet() NetDocument {
	port := func(host, target uint16, address string) PodPortDocument {
		return PodPortDocument{Host: host, Protocol: "TCP", Address: netip.MustParseAddr(address), Target: target}
	}
	since := func(d time.Duration) *time.Time { then := now.Add(-d); return &then }
	lost := port(53, 53, "10.42.0.9")
	lost.Protocol, lost.HostIP, lost.Missing = "UDP", netip.MustParseAddr("192.0.2.7"), true
	return NetDocument{
		Mode: "routed", ConfigFolder: "/etc/cni/net.d", ConfigFile: "/etc/cni/net.d/10-tinylet.conflist",
		Networks: []PodsNetworkDocument{
			{Subnet: netip.MustParsePrefix("10.42.0.0/24"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Subnet: netip.MustParsePrefix("fd00:42::/64"), Gateway: netip.MustParseAddr("fd00:42::1")},
			{Subnet: netip.MustParsePrefix("10.88.0.0/24"), Gateway: netip.MustParseAddr("10.88.0.1"), Kept: true},
		},
		Bridge: &BridgeDocument{Name: "tinylet0", Exists: true, Up: true}, MTU: 1400, Masquerade: true,
		Direct: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("10.42.2.0/24")},
		Uplink: &UplinkDocument{Name: "eth0", MTU: 1500, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}},
		Pods: []PodNetDocument{
			{
				Pod: "default/web-board", Container: strings.Repeat("ab", 32), Interface: "veth0123456789", Since: since(26 * time.Hour),
				Addresses: []netip.Addr{netip.MustParseAddr("10.42.0.5"), netip.MustParseAddr("fd00:42::5")},
				Ports:     []PodPortDocument{port(443, 8443, "10.42.0.5"), port(8080, 80, "10.42.0.5"), port(8080, 80, "fd00:42::5")},
			},
			{
				Pod: "kube-system/dns", Container: strings.Repeat("cd", 32), Interface: "vethabcdef0123", InterfaceMissing: true, Since: since(-time.Hour),
				Addresses: []netip.Addr{netip.MustParseAddr("10.42.0.9")}, Ports: []PodPortDocument{lost},
			},
			{Container: strings.Repeat("ef", 32), Interface: "veth1122334455", Addresses: []netip.Addr{netip.MustParseAddr("10.88.0.3")}, Since: since(time.Minute)},
		},
	}
}

func TestNetTable(t *testing.T) {
	s := newNode(t, nil, nil).system
	full := sampleNet()
	fresh := NetDocument{ConfigFolder: "/etc/cni/net.d", Pods: []PodNetDocument{}}
	host := NetDocument{
		Mode: "host", ConfigFolder: "/etc/cni/net.d", ConfigFile: "/etc/cni/net.d/10-tinylet.conflist",
		Refuse: "pods of this node have the host's network", Uplink: &UplinkDocument{Name: "wlan0", MTU: 1500},
	}
	torn := fresh
	torn.ConfigFile = "/etc/cni/net.d/10-tinylet.conflist"
	lo := fresh
	lo.ConfigFile, lo.OnlyLoopback = "/etc/cni/net.d/99-loopback.conf", true
	loFirst := lo
	loFirst.ConfigFile, loFirst.Shadowed = "/etc/cni/net.d/00-loopback.conf", "/etc/cni/net.d/10-tinylet.conflist"
	foreign := NetDocument{Mode: "cni", ConfigFolder: "/etc/cni/net.d", ConfigFile: "/etc/cni/net.d/10-flannel.conflist", Uplink: full.Uplink}
	shadowed := sampleNet()
	shadowed.Mode, shadowed.ConfigFile, shadowed.Shadowed = "cni", "/etc/cni/net.d/05-other.conf", "/etc/cni/net.d/10-tinylet.conflist"
	shadowed.Networks, shadowed.Bridge, shadowed.Pods = nil, nil, shadowed.Pods[:1]
	damaged := sampleNet()
	damaged.Mode, damaged.Direct, damaged.MTU, damaged.Pods = "bridge", nil, 0, nil
	damaged.Networks = damaged.Networks[:1]
	damaged.Bridge = &BridgeDocument{Name: "tinylet0"}
	damaged.RulesProblem = (&nft.Edited{Table: "inet tinylet", What: "rules of chain guard"}).Error()
	damaged.SpoofingProblem = nft.ErrNoBridgeFamily.Error()
	behind := sampleNet()
	behind.RulesProblem, behind.Pods = damaged.RulesProblem, nil
	down := damaged
	down.Bridge, down.Masquerade, down.RulesProblem = &BridgeDocument{Name: "tinylet0", Exists: true}, false, ""
	down.SpoofingProblem = ""
	for name, doc := range map[string]NetDocument{
		"net.txt": full, "net-none.txt": fresh, "net-torn.txt": torn, "net-host.txt": host, "net-foreign.txt": foreign,
		"net-shadowed.txt": shadowed, "net-damaged.txt": damaged, "net-down.txt": down, "net-behind.txt": behind,
		"net-loopback.txt": lo, "net-loopback-first.txt": loFirst,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := s.printNet(&out, &doc); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.String())
		})
	}
	var out bytes.Buffer
	if err := printJSON(&out, full); err != nil {
		t.Fatal(err)
	}
	golden(t, "net.json", out.String())
}

func TestNetIsForRoot(t *testing.T) {
	n := newNode(t, nil, nil)
	n.system.uid = func() int { return 1000 }
	if out, _, err := n.run(t, "net"); err == nil || !strings.Contains(err.Error(), "sudo") || out != "" {
		t.Errorf("stdout %q, %v", out, err)
	}
}

// TestNetConfiguration checks which configuration of a directory is used.
func TestNetConfiguration(t *testing.T) {
	c := cni.Default()
	c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.0.0/24")}}
	ours := conflist(t, c)
	named, err := cni.Conflist(c, "mine")
	if err != nil {
		t.Fatal(err)
	}
	c.Direct = []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")}
	routed := conflist(t, c)
	c = cni.Default()
	c.Refuse = "no"
	refusing := conflist(t, c)
	const others = `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge"}]}`
	const (
		loopback     = `{"name": "lo", "type": "loopback"}`
		loopbackList = `{"name": "lo", "plugins": [{"type": "loopback"}]}`
	)
	// only marks configurations with only the loopback plugin.
	const only = "loopback"
	for _, tt := range []struct {
		name                 string
		files                map[string]string
		mode, file, shadowed string
	}{
		{"a loopback", map[string]string{"99-loopback.conf": loopback, "200-loopback.conflist": loopbackList}, only, "200-loopback.conflist", ""},
		{"a loopback behind", map[string]string{network.FileName: ours, "99-loopback.conf": loopback}, "bridge", network.FileName, ""},
		{"a loopback first", map[string]string{network.FileName: ours, "00-loopback.conf": loopback}, only, "00-loopback.conf", network.FileName},
		{"a loopback before a damaged one", map[string]string{network.FileName: "{", "00-loopback.conf": loopback}, only, "00-loopback.conf", ""},
		{"a loopback before another", map[string]string{"00-loopback.conf": loopback, "50-x.conf": others}, "cni", "00-loopback.conf", ""},
		{"by its name alone", map[string]string{"99-loopback.conf": others}, "cni", "99-loopback.conf", ""},
		{"nothing", nil, "", "", ""},
		{"not configurations", map[string]string{"README": "x", ".tinylet-1": ours}, "", "", ""},
		{"ours", map[string]string{network.FileName: ours}, "bridge", network.FileName, ""},
		{"ours, with routes", map[string]string{network.FileName: routed}, "routed", network.FileName, ""},
		{"ours, which refuses", map[string]string{network.FileName: refusing}, "host", network.FileName, ""},
		{"ours first", map[string]string{network.FileName: ours, "20-x.conflist": others}, "bridge", network.FileName, ""},
		{"another first", map[string]string{network.FileName: ours, "05-x.json": others, "07-y.conf": others}, "cni", "05-x.json", network.FileName},
		{"another of our name", map[string]string{network.FileName: others}, "cni", network.FileName, ""},
		{"another of our name and plugin", map[string]string{network.FileName: string(named)}, "cni", network.FileName, ""},
		{"damaged", map[string]string{network.FileName: "{"}, "", network.FileName, ""},
		{"damaged, behind another", map[string]string{network.FileName: "{", "05-x.json": others}, "cni", "05-x.json", ""},
		{"without an end", map[string]string{network.FileName: ours + strings.Repeat(" ", 1<<20) + "{"}, "bridge", network.FileName, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			put(t, folder, tt.files)
			d := NetDocument{ConfigFolder: folder}
			if _, err := d.configuration(folder); err != nil {
				t.Fatal(err)
			}
			base := func(path string) string { return strings.TrimPrefix(path, folder+"/") }
			mode := d.Mode
			if d.OnlyLoopback {
				mode += only
			}
			if mode != tt.mode || base(d.ConfigFile) != tt.file || base(d.Shadowed) != tt.shadowed {
				t.Errorf("mode %q, file %q, shadowed %q", mode, d.ConfigFile, d.Shadowed)
			}
		})
	}
	var d NetDocument
	if _, err := d.configuration(filepath.Join(t.TempDir(), "none")); err != nil || d.Mode != "" {
		t.Errorf("without a folder: mode %q, %v", d.Mode, err)
	}
}

func TestNetworkDir(t *testing.T) {
	n := newNode(t, nil, nil)
	if got, want := n.system.networkDir(t.Context()), filepath.Join(n.system.root, "/etc/cni/net.d"); got != want {
		t.Errorf("folder %q, want %q", got, want)
	}
	etc := filepath.Join(n.system.root, "etc/tinylet")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"apiVersion: tinylet.dev/v1alpha1\nkind: TinyletConfiguration\nnetwork: {configFolder: /run/cni}\n": "/run/cni",
		"{": "/etc/cni/net.d",
	} {
		put(t, etc, map[string]string{"config.yaml": text})
		if got := n.system.networkDir(t.Context()); got != filepath.Join(n.system.root, want) {
			t.Errorf("folder %q, want that of %s", got, want)
		}
	}
}

// TestNetOfTheKernel sets up a pod's network in a network namespace, and then removes
// parts of it.
func TestNetOfTheKernel(t *testing.T) {
	host, inside, world := nstest.New(t), nstest.New(t), nstest.New(t)
	n := newNode(t, nil, nil)
	folder := filepath.Join(n.system.root, "etc/cni/net.d")
	c := cni.Default()
	c.Bridge, c.Masquerade, c.StateDir = "pods0", true, filepath.Join(t.TempDir(), "leases")
	c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.0.0/24")}}
	show := func() NetDocument {
		t.Helper()
		var out bytes.Buffer
		if err := netns.Do(host, func() error { return n.runTo(t, &out, &out, "net", "-o", "json") }); err != nil {
			t.Fatal(err)
		}
		var doc NetDocument
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	want := NetDocument{ConfigFolder: folder, Pods: []PodNetDocument{}}
	if diff := cmp.Diff(want, show(), addressesEqual); diff != "" {
		t.Errorf("before anything is there (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(n.system.root, cni.DefaultStateDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder was made to look: %v", err)
	}

	put(t, folder, map[string]string{network.FileName: conflist(t, c)})
	uplink(t, host, world)
	pod := podnet.Pod{
		ID: cni.ID{ContainerID: "c0ffee", Interface: "eth0"}, Namespace: "default", Name: "web", NetNS: fmt.Sprintf("/proc/self/fd/%d", inside.Fd()),
		Ports: []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}},
	}
	var made podnet.Result
	if err := netns.Do(host, func() error {
		pods, err := podnet.New(c)
		if err != nil {
			return err
		}
		defer pods.Close()
		made, err = pods.Setup(pod)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(inside)

	address := made.Addresses[0].Addr()
	got := show()
	want = NetDocument{
		Mode: "bridge", ConfigFolder: folder, ConfigFile: filepath.Join(folder, network.FileName), Masquerade: true,
		Networks: []PodsNetworkDocument{{Subnet: netip.MustParsePrefix("10.42.0.0/24"), Gateway: netip.MustParseAddr("10.42.0.1")}},
		Bridge:   &BridgeDocument{Name: "pods0", Exists: true, Up: true},
		Uplink:   &UplinkDocument{Name: "eth0", MTU: 1500, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		Pods: []PodNetDocument{{
			Pod: "default/web", Container: "c0ffee", Addresses: []netip.Addr{address}, Interface: made.Host.Name,
			Ports: []PodPortDocument{{Host: 8080, Protocol: "TCP", Address: address, Target: 80}},
		}},
	}
	if len(got.Pods) == 1 && got.Pods[0].Since == nil {
		t.Error("no age")
	}
	for i := range got.Pods {
		got.Pods[i].Since = nil
	}
	if diff := cmp.Diff(want, got, addressesEqual); diff != "" {
		t.Errorf("a pod (-want +got):\n%s", diff)
	}

	if err := netns.Do(host, func() error {
		table, err := nft.Open()
		if err != nil {
			return err
		}
		defer table.Close()
		senders, err := nft.OpenSenders()
		if err != nil {
			return err
		}
		defer senders.Close()
		if err := senders.Delete(); err != nil {
			return err
		}
		h, err := link.Open()
		if err != nil {
			return err
		}
		defer h.Close()
		return errors.Join(table.Delete(), h.DeleteLink(made.Host.Name), h.DeleteLink("pods0"))
	}); err != nil {
		t.Fatal(err)
	}
	got = show()
	if err := nstest.WithoutNetfilter(host, func() error {
		var out bytes.Buffer
		if err := n.runTo(t, &out, &out, "net"); err != nil {
			return err
		}
		for _, want := range []string{"pods without hostNetwork cannot start", "modprobe -a nf_tables", "pods can spoof the addresses of other pods without nftables", "default/web"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("without nftables it does not say %q:\n%s", want, &out)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if p := got.Pods[0]; !p.InterfaceMissing || !p.Ports[0].Missing || got.Bridge.Exists || !strings.Contains(got.RulesProblem, "does not exist") || got.SpoofingProblem == "" {
		t.Errorf("what was taken away is not missed: %+v", got)
	}
}

var addressesEqual = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// uplink connects two namespaces and adds a default route.
func uplink(t *testing.T, host, world *os.File) {
	t.Helper()
	h, err := link.OpenIn(host)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	o, err := link.OpenIn(world)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := h.CreateVeth(link.Veth{Name: "eth0", Peer: link.Peer{Name: "eth0", NS: world}}); err != nil {
		t.Fatal(err)
	}
	for h, inside := range map[*link.Handle]link.Inside{
		h: {Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}, Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
		o: {Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}},
	} {
		if _, err := h.Configure(inside); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel reports the carrier with a delay.
	for range 500 {
		if _, err = h.Uplink(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(err)
}

func conflist(t *testing.T, c cni.Config) string {
	t.Helper()
	data, err := cni.Conflist(c, "tinylet")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func put(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
