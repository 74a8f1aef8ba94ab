package criconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestParseResolvConf(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     *runtimeapi.DNSConfig
	}{
		{"empty", "", &runtimeapi.DNSConfig{}},
		{"comments and space", "# nameserver 1.1.1.1\n;x\n \n\tnameserver  192.0.2.1 # local\r\n", &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}}},
		{"servers add up", "nameserver a\nnameserver\nnameserver b", &runtimeapi.DNSConfig{Servers: []string{"a", "b"}}},
		{"the last search wins", "search a b.\nsearch c. .\n", &runtimeapi.DNSConfig{Searches: []string{"c"}}},
		{"options by name", "options ndots:1 rotate\noptions ndots:3 edns0", &runtimeapi.DNSConfig{Options: []string{"ndots:3", "rotate", "edns0"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ParseResolvConf([]byte(tc.in)), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("search a\nnameserver b\noptions c:d"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dns := ParseResolvConf(raw)
		for _, list := range [][]string{dns.Servers, dns.Searches, dns.Options} {
			for _, s := range list {
				if strings.ContainsAny(s, " \n") {
					t.Errorf("%q holds a separator", s)
				}
			}
		}
	})
}

func TestDNSPolicy(t *testing.T) {
	value := "7"
	for _, tc := range []struct {
		name string
		edit func(*v1.PodSpec, *Node)
		want *runtimeapi.DNSConfig
	}{
		{"cluster first", func(*v1.PodSpec, *Node) {}, &runtimeapi.DNSConfig{
			Servers:  []string{"10.96.0.10"},
			Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "lan"},
			Options:  []string{"ndots:5"},
		}},
		{"cluster first without a domain", func(_ *v1.PodSpec, n *Node) { n.ClusterDomain = "" }, &runtimeapi.DNSConfig{
			Servers:  []string{"10.96.0.10"},
			Searches: []string{"example.com", "lan"},
			Options:  []string{"ndots:5"},
		}},
		{"cluster first without a cluster", func(_ *v1.PodSpec, n *Node) { n.ClusterDNS = nil }, board().Resolv},
		{"cluster first on the host network", func(s *v1.PodSpec, _ *Node) { s.HostNetwork = true }, board().Resolv},
		{"cluster first even there", func(s *v1.PodSpec, n *Node) {
			s.HostNetwork, s.DNSPolicy, n.ClusterDomain = true, v1.DNSClusterFirstWithHostNet, ""
		}, &runtimeapi.DNSConfig{
			Servers:  []string{"10.96.0.10"},
			Searches: []string{"example.com", "lan"},
			Options:  []string{"ndots:5"},
		}},
		{"default", func(s *v1.PodSpec, _ *Node) { s.DNSPolicy = v1.DNSDefault }, board().Resolv},
		{"no resolv.conf", func(s *v1.PodSpec, n *Node) { s.DNSPolicy, n.Resolv = v1.DNSDefault, nil }, &runtimeapi.DNSConfig{
			Servers: []string{"127.0.0.1"}, Searches: []string{"."},
		}},
		{"none", func(s *v1.PodSpec, _ *Node) {
			s.DNSPolicy = v1.DNSNone
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"a", "a", "b"}, Options: []v1.PodDNSConfigOption{{Name: "x", Value: &value}, {Name: "x"}}}
		}, &runtimeapi.DNSConfig{Servers: []string{"a", "b"}, Options: []string{"x"}}},
		{"the pod's own on top", func(s *v1.PodSpec, _ *Node) {
			s.DNSPolicy = v1.DNSDefault
			s.DNSConfig = &v1.PodDNSConfig{
				Nameservers: []string{"c", "d"}, Searches: []string{"lan", "here"},
				Options: []v1.PodDNSConfigOption{{Name: "timeout", Value: &value}},
			}
		}, &runtimeapi.DNSConfig{
			Servers:  []string{"192.0.2.1", "192.0.2.2", "c"},
			Searches: []string{"example.com", "lan", "here"},
			Options:  []string{"timeout:7"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, n := &v1.Pod{}, board()
			p.Namespace, p.Spec.DNSPolicy = "ns", v1.DNSClusterFirst
			tc.edit(&p.Spec, n)
			got, _ := dnsOf(p, n)
			if diff := cmp.Diff(tc.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(board().Resolv.Options, []string{"timeout:1"}); diff != "" {
				t.Errorf("the node's own was changed: %s", diff)
			}
		})
	}
}

func TestFitSearches(t *testing.T) {
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label}, ".")
	var many []string
	for i := range 40 {
		many = append(many, string(rune('a'+i%26))+strings.Repeat("x", 80))
	}
	got := fitSearches(append([]string{"ok", long}, many...))
	if got[0] != "ok" || got[1] == long {
		t.Errorf("a name longer than 253 characters stays: %q", got[:2])
	}
	if n := len(strings.Join(got, " ")); n > maxSearchChars || n < maxSearchChars-100 {
		t.Errorf("%d characters, want just below %d", n, maxSearchChars)
	}
	if got := fitSearches(make([]string, 40)); len(got) != maxSearches {
		t.Errorf("%d domains stay", len(got))
	}
}

func TestSandboxWarnings(t *testing.T) {
	p := podOf()
	p.Spec.DNSPolicy = v1.DNSNone
	p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, Searches: []string{"a", "b"}}
	if got := SandboxWarnings(p, board()); got != nil {
		t.Errorf("got %v without a reason", got)
	}
	p.Spec.DNSConfig.Nameservers = append(p.Spec.DNSConfig.Nameservers, "192.0.2.4")
	p.Spec.DNSConfig.Searches = append(p.Spec.DNSConfig.Searches, strings.Repeat("x", 254))
	want := []Warning{
		{"DNSConfigForming", "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3"},
		{"DNSConfigForming", "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a b"},
	}
	if diff := cmp.Diff(want, SandboxWarnings(p, board())); diff != "" {
		t.Error(diff)
	}
}
