package board

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func tapNetwork() *Network {
	return &Network{
		Tap: "tap3", MAC: net.HardwareAddr{0x52, 0x54, 0, 0x77, 0, 3}, Address: netip.MustParsePrefix("10.77.0.13/22"),
		Gateway: netip.MustParseAddr("10.77.0.1"), Hostname: "edge-3",
	}
}

func TestNetworkFiles(t *testing.T) {
	got := map[string]string{}
	for _, f := range tapNetwork().files() {
		got[f.Path] = string(f.Data)
	}
	want := map[string]string{
		"/etc/network/interfaces": "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n" +
			"\taddress 10.77.0.13\n\tnetmask 255.255.252.0\n\tgateway 10.77.0.1\n",
		"/etc/hostname": "edge-3\n",
		"/etc/hosts":    "127.0.0.1 localhost\n127.0.1.1 edge-3\n",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	n := tapNetwork()
	n.Hostname, n.Gateway = "", netip.Addr{}
	if f := n.files(); len(f) != 1 || strings.Contains(string(f[0].Data), "gateway") {
		t.Errorf("without a name and a gateway: %v", f)
	}
}

func TestNetworkOfQEMU(t *testing.T) {
	has := func(args []string, a, b string) bool {
		i := slices.Index(args, a)
		return i >= 0 && i+1 < len(args) && args[i+1] == b
	}
	var none *Network
	for name, tc := range map[string]struct {
		n           *Network
		netdev, dev string
	}{
		"user network": {none, "user,id=net,restrict=on", "virtio-net-pci,netdev=net,romfile="},
		"tap":          {tapNetwork(), "tap,id=net,ifname=tap3,script=no,downscript=no", "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:77:00:03"},
	} {
		args := qemuArgs(arches[ARM64], &Image{}, VMOptions{Network: tc.n}, "/dir", "/initrd")
		card := args[slices.Index(args, "-netdev"):]
		if !has(args, "-netdev", tc.netdev) || !has(card, "-device", tc.dev) {
			t.Errorf("%s: %q", name, args)
		}
	}
	argv, err := none.command([]string{"qemu", "-x"})
	if err != nil || !slices.Equal(argv, []string{"qemu", "-x"}) {
		t.Errorf("without a network: %q, %v", argv, err)
	}
}

func TestSecondNetwork(t *testing.T) {
	second := tapNetwork()
	second.Tap, second.MAC = "tap4", net.HardwareAddr{0x52, 0x54, 0, 0x77, 0, 4}
	o := VMOptions{Network: tapNetwork(), Second: second}
	if err := o.checkNetworks(); err != nil {
		t.Error(err)
	}
	args := strings.Join(o.networkArgs(), " ")
	if first, _, ok := strings.Cut(args, "netdev=net2,romfile=,mac=52:54:00:77:00:04"); !ok || !strings.Contains(first, "netdev=net,") || !strings.Contains(first, "tap,id=net2,ifname=tap4,") {
		t.Errorf("the second card does not come after the first: %s", args)
	}
	second.Namespace = "elsewhere"
	if o.checkNetworks() == nil || (VMOptions{Second: second}).checkNetworks() == nil {
		t.Error("a second card that QEMU cannot have is no error")
	}
}

func TestNetworkCheck(t *testing.T) {
	if err := tapNetwork().check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Network){
		"no tap":  func(n *Network) { n.Tap = "" },
		"no MAC":  func(n *Network) { n.MAC = nil },
		"no IPv4": func(n *Network) { n.Address = netip.MustParsePrefix("fd00::1/64") },
		"nothing": func(n *Network) { n.Address = netip.Prefix{} },
	} {
		n := tapNetwork()
		spoil(n)
		if n.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
