package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestNetworkIsChecked(t *testing.T) {
	const inCluster = "/etc/kubeconfig"
	for _, row := range []struct {
		name, kubeconfig string
		network          Network
		want             string // part of the error, "" for none
	}{
		{"nothing set", "", Network{}, ""},
		{"all set", inCluster, Network{Mode: "routed", PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}, Bridge: "pods-0_a.b", MTU: 1400, Services: true}, ""},
		{"host", "", Network{Mode: "host"}, ""},
		{"cni", inCluster, Network{Mode: "cni"}, ""},
		{"mode", "", Network{Mode: "flannel"}, `network.mode is "flannel"`},
		{"routed, alone", "", Network{Mode: "routed"}, "follow the Node objects"},
		{"services, alone", "", Network{Services: true}, "network.services"},
		{"services in the mode host", inCluster, Network{Mode: "host", Services: true}, "network.services"},
		{"services in the mode cni", inCluster, Network{Mode: "cni", Services: true}, "network.services"},
		{"no network", "", Network{PodCIDRs: []string{"10.1.0.0"}}, "a network such as"},
		{"IPv4 in IPv6", "", Network{PodCIDRs: []string{"::ffff:10.1.0.0/120"}}, "a network such as"},
		{"bits of a host", "", Network{PodCIDRs: []string{"10.1.0.1/24"}}, "10.1.0.0/24"},
		{"no room", "", Network{PodCIDRs: []string{"10.1.0.0/31"}}, "room for pods"},
		{"everything", "", Network{PodCIDRs: []string{"0.0.0.0/0"}}, "that other hosts can reach"},
		{"everything of IPv6", "", Network{PodCIDRs: []string{"::/64"}}, "that other hosts can reach"},
		{"loopback", "", Network{PodCIDRs: []string{"127.1.0.0/24"}}, "that other hosts can reach"},
		{"link-local", "", Network{PodCIDRs: []string{"fe80::/64"}}, "that other hosts can reach"},
		{"multicast", "", Network{PodCIDRs: []string{"224.1.0.0/24"}}, "that other hosts can reach"},
		{"two of a family", "", Network{PodCIDRs: []string{"10.1.0.0/24", "10.2.0.0/24"}}, "at most one network of IPv4"},
		{"long name", "", Network{Bridge: strings.Repeat("a", 16)}, "at most 15 letters"},
		{"a folder's name", "", Network{Bridge: ".."}, "the name of an interface"},
		{"a name with a slash", "", Network{Bridge: "a/b"}, "the name of an interface"},
		{"small MTU", "", Network{MTU: 1279}, "network.mtu"},
		{"relative folder", "", Network{ConfigFolder: "net.d"}, "an absolute path"},
		{"relative folder of plugins", "", Network{PluginFolder: "bin"}, "an absolute path"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg, _ := mustBuild(t, nil, nil)
			cfg.Kubeconfig = row.kubeconfig
			setDefault(&row.network.Bridge, DefaultBridge)
			cfg.Tinylet.Network = row.network
			err := Validate(cfg)
			if got := fmt.Sprint(err); (err == nil) != (row.want == "") || !strings.Contains(got, row.want) {
				t.Errorf("%s; want %q", got, row.want)
			}
		})
	}
}

// An invalid podCIDR of the kubelet has one error, whether or not it is used.
func TestPodCIDRHasOneError(t *testing.T) {
	for _, kubeconfig := range []string{"", "/etc/kubeconfig"} {
		cfg, _ := mustBuild(t, nil, nil)
		cfg.Kubeconfig, cfg.Kubelet.PodCIDR = kubeconfig, "x"
		if got := fmt.Sprint(Validate(cfg)); strings.Count(got, `podCIDR (--pod-cidr) is "x"`) != 1 {
			t.Errorf("with kubeconfig %q: %s", kubeconfig, got)
		}
	}
}

func TestPodNetworks(t *testing.T) {
	for _, row := range []struct {
		name, kubeconfig, podCIDR string
		podCIDRs, want            []string
	}{
		{"alone", "", "", nil, []string{DefaultPodCIDR}},
		{"alone, as a kubelet has it", "", "10.1.0.0/24,fd00:1::/64", nil, []string{"10.1.0.0/24", "fd00:1::/64"}},
		{"alone, in both", "", "10.1.0.0/24", []string{"10.2.0.0/24"}, []string{"10.2.0.0/24"}},
		{"in a cluster", "/etc/kubeconfig", "10.1.0.0/24", nil, nil},
		{"in a cluster, configured", "/etc/kubeconfig", "", []string{"10.2.0.0/24"}, []string{"10.2.0.0/24"}},
	} {
		cfg, _ := mustBuild(t, nil, nil)
		cfg.Kubeconfig, cfg.Kubelet.PodCIDR, cfg.Tinylet.Network.PodCIDRs = row.kubeconfig, row.podCIDR, row.podCIDRs
		networks := cfg.PodCIDRs()
		var got []string
		for _, p := range networks {
			got = append(got, p.String())
		}
		if !slices.Equal(got, row.want) || (networks == nil) != (row.want == nil) {
			t.Errorf("%s: %q", row.name, got)
		}
	}
}
