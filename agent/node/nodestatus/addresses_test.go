package nodestatus_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func internal(texts ...string) []v1.NodeAddress {
	var list []v1.NodeAddress
	for _, text := range texts {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: text})
	}
	return append(list, v1.NodeAddress{Type: v1.NodeHostName, Address: "gateway-7"})
}

func TestAddresses(t *testing.T) {
	for _, row := range []struct {
		name     string
		nodeIPs  []string
		routes   []string // nil is those of the board
		external bool
		old      []v1.NodeAddress
		want     []v1.NodeAddress
		err      string
	}{
		{name: "by the route, IPv4 first", want: internal("192.168.1.20")},
		{name: "by the route of the only family", routes: []string{"2001:db8::20"}, want: internal("2001:db8::20")},
		{name: "one configured", nodeIPs: []string{"2001:db8::20"}, want: internal("2001:db8::20")},
		{name: "dual stack", nodeIPs: []string{"192.168.1.20", "2001:db8::20"}, want: internal("192.168.1.20", "2001:db8::20")},
		{name: "dual stack, IPv6 first", nodeIPs: []string{"2001:db8::20", "192.168.1.20"}, want: internal("2001:db8::20", "192.168.1.20")},
		{name: "any IPv4", nodeIPs: []string{"0.0.0.0"}, want: internal("192.168.1.20")},
		{name: "any IPv6", nodeIPs: []string{"::"}, want: internal("2001:db8::20")},
		{name: "any IPv6, and none is there", nodeIPs: []string{"::"}, routes: []string{"192.168.1.20"}, want: internal("192.168.1.20")},
		{name: "any IPv4, and none is there", nodeIPs: []string{"0.0.0.0"}, routes: []string{"2001:db8::20"}, want: internal("2001:db8::20")},
		{name: "a first one of any family wins over the second", nodeIPs: []string{"0.0.0.0", "2001:db8::20"}, want: internal("192.168.1.20")},

		{name: "not the host's", nodeIPs: []string{"10.9.9.9"}, old: internal("1.2.3.4"), want: internal("1.2.3.4"), err: "10.9.9.9"},
		{name: "the second is not the host's", nodeIPs: []string{"192.168.1.20", "2001:db8::99"}, err: "2001:db8::99"},
		{name: "nothing found", routes: []string{}, old: internal("1.2.3.4"), want: internal("1.2.3.4"), err: "gateway-7"},

		{name: "cloud, and it told already", external: true, nodeIPs: []string{"192.168.1.20"}, old: internal("1.2.3.4"), want: internal("1.2.3.4")},
		{name: "cloud, which will tell", external: true, want: internal()},
		{name: "cloud, one configured until then", external: true, nodeIPs: []string{"192.168.1.20"}, want: internal("192.168.1.20")},
		{name: "cloud, a family until then", external: true, nodeIPs: []string{"::"}, want: internal("2001:db8::20")},
		{name: "cloud, not the host's", external: true, nodeIPs: []string{"10.9.9.9"}, err: "10.9.9.9"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t, func(in *nodestatus.Inputs) {
				in.Config.NodeIPs = ips(row.nodeIPs...)
				if row.routes != nil {
					in.DefaultIPs = ips(row.routes...)
				}
				if row.external {
					in.Config.CloudProvider = "external"
				}
			})
			got, err := nodestatus.Status(&v1.NodeStatus{Addresses: row.old}, in)
			if diff := cmp.Diff(row.want, got.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if (err != nil) != (row.err != "") || (err != nil && !strings.Contains(err.Error(), row.err)) {
				t.Errorf("error %v, want %q in it", err, row.err)
			}
			if len(got.Conditions) != 4 || got.NodeInfo.KubeletVersion == "" {
				t.Error("the rest of the status is missing")
			}
		})
	}
}

func TestAddressIsTheName(t *testing.T) {
	got := status(t, nil, board(t, func(in *nodestatus.Inputs) { in.Config.NodeName = "10.1.1.1" }))
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.1.1.1"}, {Type: v1.NodeHostName, Address: "10.1.1.1"}}
	if diff := cmp.Diff(want, got.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
