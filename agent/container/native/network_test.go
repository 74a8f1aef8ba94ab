package native

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

func TestIPv4First(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"10.0.0.1/24", "10.0.0.1/24"},
		{"10.0.0.1/24 fd00::1/64", "10.0.0.1/24 fd00::1/64"},
		{"fd00::1/64 10.0.0.1/24", "10.0.0.1/24 fd00::1/64"},
		{"fd00::1/64 10.0.0.1/24 10.0.0.2/24", "10.0.0.1/24 fd00::1/64 10.0.0.2/24"},
		{"fd00::1/64", "fd00::1/64"},
	} {
		var in []netip.Prefix
		for _, s := range strings.Fields(tt.in) {
			in = append(in, netip.MustParsePrefix(s))
		}
		var got []string
		for _, p := range ipv4First(in) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestHostPorts(t *testing.T) {
	tcp := func(host, target int32, ip string) *runtimeapi.PortMapping {
		return &runtimeapi.PortMapping{HostPort: host, ContainerPort: target, HostIp: ip}
	}
	for _, tt := range []struct {
		name string
		in   []*runtimeapi.PortMapping
		want []nft.Port
		err  string
	}{
		{name: "none"},
		{name: "no host port", in: []*runtimeapi.PortMapping{tcp(0, 80, "")}},
		{name: "twice", in: []*runtimeapi.PortMapping{tcp(8080, 80, ""), tcp(8080, 80, "")}, want: []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}}},
		{
			name: "address and protocol",
			in:   []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_UDP, HostPort: 53, ContainerPort: 53, HostIp: "192.0.2.1"}},
			want: []nft.Port{{Protocol: nft.UDP, Host: 53, Target: 53, HostIP: netip.MustParseAddr("192.0.2.1")}},
		},
		{name: "large", in: []*runtimeapi.PortMapping{tcp(65536, 80, "")}, err: "host port 65536"},
		{name: "large target", in: []*runtimeapi.PortMapping{tcp(80, 65616, "")}, err: "container port 65616"},
		{name: "no target", in: []*runtimeapi.PortMapping{tcp(80, 0, "")}, err: "container port 0"},
		{name: "unknown protocol", in: []*runtimeapi.PortMapping{{Protocol: 9, HostPort: 80, ContainerPort: 80}}, err: "protocol 9"},
		{name: "no address", in: []*runtimeapi.PortMapping{tcp(80, 80, "host")}, err: "host port 80"},
	} {
		got, err := hostPorts(tt.in)
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b nft.Port) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestBandwidth(t *testing.T) {
	const key = "kubernetes.io/ingress-bandwidth"
	for _, tt := range []struct {
		text string
		want uint64
		err  string
	}{
		{"1M", 1_000_000, ""}, {"1Ki", 1024, ""}, {"1P", 1e15, ""}, {"1k", 1000, ""},
		{"999", 0, "within"}, {"2P", 0, "within"}, {"-1M", 0, "within"}, {"fast", 0, `"fast"`}, {"", 0, `""`},
	} {
		got, err := bandwidth(map[string]string{key: tt.text}, key)
		if got.BitsPerSecond != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, %v", tt.text, got, err)
		}
	}
	if got, err := bandwidth(nil, key); got != (link.Rate{}) || err != nil {
		t.Errorf("no annotation: %v, %v", got, err)
	}
}
