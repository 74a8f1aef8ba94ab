package cni

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzConfig checks that the output is JSON for any standard input, and that the Network
// receives only what Config and Attachment permit.
func FuzzConfig(f *testing.F) {
	f.Add(validConfig + "}")
	f.Add(validConfig + `,"runtimeConfig":{"portMappings":[{"HostPort":1,"containerPort":2,"protocol":"udp","hostIP":"::1"}],"ips":["10.0.0.1/8"],"mac":"02:00:00:00:00:01","bandwidth":{"egressRate":1}}}`)
	f.Add(validConfig + `,"mtu":1400,"direct":["fd00::/8"],"stateDir":"/a","bridge":"b","args":{"cni":{"ips":["fd00::1"]}},"prevResult":{"ips":[{"address":"10.0.0.2/8"}]}}`)
	f.Add(validConfig + `,"cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}],"cni.dev/attachments":null}`)
	f.Fuzz(func(t *testing.T, stdin string) {
		for _, v := range []verb{add, del, check, gc, status, version} {
			n := &fake{}
			got := n.call(t, "COMMAND="+string(v), stdin)
			if got.exit != 0 {
				if e := failure(t, got); e.Code == 0 || e.Msg == "" || v == del || v == version {
					t.Fatalf("%s: %v", v, got)
				}
				continue
			}
			if got.stdout != "" && !json.Valid([]byte(got.stdout)) {
				t.Fatalf("%s answers %q", v, got.stdout)
			}
			checkPromises(t, v, n)
		}
	})
}

// checkPromises checks the documented properties of the arguments of a Network.
func checkPromises(t *testing.T, v verb, n *fake) {
	t.Helper()
	c := n.config
	if v != version && n.calls != nil && (!isInterface(c.Bridge) || c.StateDir[0] != '/' || c.MTU < 0 || c.MTU > maxMTU || len(c.Ranges) > maxRanges) {
		t.Fatalf("%s with %+v", v, c)
	}
	for _, r := range c.Ranges {
		if r.Prefix != r.Prefix.Masked() || r.Gateway.IsValid() && !r.Prefix.Contains(r.Gateway) {
			t.Fatalf("range %+v", r)
		}
	}
	for _, p := range n.at.Ports {
		if p.HostPort == 0 || p.ContainerPort == 0 || !strings.Contains("tcp udp sctp", p.Protocol) || p.Protocol == "" {
			t.Fatalf("port %+v", p)
		}
	}
	for _, ip := range n.at.IPs {
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Fatalf("address %v", ip)
		}
	}
	if len(n.at.MAC) != 0 && len(n.at.MAC) != 6 {
		t.Fatalf("MAC %v", n.at.MAC)
	}
	for _, id := range n.valid {
		if !isName(id.ContainerID) || !isInterface(id.Interface) {
			t.Fatalf("valid attachment %+v", id)
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"", ";", "=", "A", "A=1", "IgnoreUnknown=1;A=1", "A=1;IgnoreUnknown=true", "IP=10.0.0.1/8;MAC=02:00:00:00:00:01", "K8S_POD_NAME=a=b;K8S_POD_UID=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := readArguments(text)
		for _, name := range []string{a.pod.Namespace, a.pod.Name, a.pod.UID} {
			if len(name) > maxArgument || !noControlChars(name) || strings.ContainsAny(name, "/ ") {
				t.Fatalf("%q gives %q", text, name)
			}
		}
		if err == nil && strings.Contains(text, "IgnoreUnknown") {
			if _, again := readArguments(text + ";UNKNOWN=1"); again != nil && strings.Contains(text, "IgnoreUnknown=1") &&
				strings.Count(text, "IgnoreUnknown") == 1 {
				t.Fatalf("%q: %v", text, again)
			}
		}
	})
}

// FuzzPreviousResult checks that an accepted result is unchanged after it was written and
// read in each version.
func FuzzPreviousResult(f *testing.F) {
	f.Add(`{}`)
	f.Add(string(bytes.TrimSpace(encodeResult(spec110, new(full())))))
	f.Add(string(bytes.TrimSpace(encodeResult(spec031, new(full())))))
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || strings.Trim(text, " \n\t\r") != text {
			return // document rejects it, or passes it without the white space
		}
		r, fault := readResult([]byte(text))
		if fault != nil {
			return
		}
		for v := range versions {
			out := bytes.TrimSpace(encodeResult(specVersion(v), r))
			if !json.Valid(out) {
				t.Fatalf("written as %s", out)
			}
			back, fault := readResult(out)
			if fault != nil {
				t.Fatalf("%s: %v", out, fault)
			}
			if diff := cmp.Diff(expected(specVersion(v), *r), *back, compare); diff != "" {
				t.Fatalf("%s\n-want +got:\n%s", out, diff)
			}
		}
	})
}

func FuzzConflist(f *testing.F) {
	for _, c := range conflists() {
		out, err := Conflist(c, "pods")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConflist(data)
		if err != nil {
			return
		}
		c.CNIVersion, c.DisableCheck = DefaultVersion, false // not written
		out, err := Conflist(c, c.Name)
		if err != nil {
			t.Fatalf("%+v is read but not written: %v", c, err)
		}
		back, err := ParseConflist(out)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, back, compare); diff != "" {
			t.Fatalf("%s\n-want +got:\n%s", out, diff)
		}
	})
}

// runtimes is the configuration that containerd passes for a pod with a port.
const runtimes = `{"bridge":"tinylet0","cniVersion":"1.0.0","direct":["10.42.0.0/16"],"hairpin":true,"masquerade":true,"mtu":0,"name":"tinylet",` +
	`"promiscuous":false,"ranges":[{"subnet":"10.42.3.0/24"}],"runtimeConfig":{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":""}]},` +
	`"stateDir":"/run/tinylet/cni","type":"tinylet-cni"}`

func BenchmarkAdd(b *testing.B) {
	f := &fake{result: Result{
		Interfaces: full().Interfaces,
		IPs:        []IP{{Interface: 2, Address: netip.MustParsePrefix("10.42.3.7/24"), Gateway: netip.MustParseAddr("10.42.3.1")}},
		Routes:     []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}}
	benchmark(b, f, "ADD", runtimes)
}

func BenchmarkDel(b *testing.B)     { benchmark(b, &fake{}, "DEL", runtimes) }
func BenchmarkVersion(b *testing.B) { benchmark(b, &fake{}, "VERSION", `{"cniVersion":"1.0.0"}`) }

func benchmark(b *testing.B, f *fake, verb, stdin string) {
	vars := map[string]string{
		"CNI_COMMAND":     verb,
		"CNI_CONTAINERID": strings.Repeat("0123456789abcdef", 4),
		"CNI_IFNAME":      "eth0",
		"CNI_NETNS":       "/run/netns/cni-01234567-89ab-cdef-0123-456789abcdef",
		"CNI_ARGS":        "IgnoreUnknown=1;K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=1-2",
	}
	b.ReportAllocs()
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		f.calls = nil
		c := Call{Env: func(name string) string { return vars[name] }, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out}
		if exit := c.Run(f.open); exit != 0 {
			b.Fatal(out.String())
		}
	}
}
