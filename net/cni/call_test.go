package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/ipam"
)

// errorOutput is an error in the output of the plugin.
type errorOutput struct {
	CNIVersion   string
	Code         Code
	Msg, Details string
}

func failure(t testing.TB, s output) (e errorOutput) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.stdout), &e); err != nil {
		t.Fatalf("exit %d with %q, which is no error: %v", s.exit, s.stdout, err)
	}
	return e
}

func TestVerbs(t *testing.T) {
	prev := validConfig + `,"prevResult":{"cniVersion":"1.1.0"}}`
	for _, test := range []struct{ env, stdin, calls string }{
		{"COMMAND=ADD", validConfig + "}", "[setup]"},
		{"COMMAND=DEL", prev, "[teardown]"},
		{"COMMAND=CHECK", prev, "[check]"},
		{"COMMAND=GC", validConfig + `,"cni.dev/valid-attachments":[]}`, "[collect]"},
		{"COMMAND=STATUS", validConfig + "}", "[status]"},
		{"COMMAND=VERSION", `{"cniVersion":"1.1.0"}`, "[]"},
		{"COMMAND=CHECK", validConfig + `,"disableCheck":true,"prevResult":{}}`, "[]"},
	} {
		f := &fake{}
		got := f.call(t, test.env, test.stdin)
		if got.exit != 0 || got.stderr != "" || fmt.Sprint(f.calls) != test.calls {
			t.Errorf("%s: got %v and calls %v, want %s", test.env, got, f.calls, test.calls)
		}
		if silent := test.env != "COMMAND=ADD" && test.env != "COMMAND=VERSION"; silent && got.stdout != "" {
			t.Errorf("%s answers %q", test.env, got.stdout)
		}
	}
}

func TestVersionAnswersInTheVersionOfTheQuestion(t *testing.T) {
	for stdin, want := range map[string]string{
		`{"cniVersion":"0.4.0"}`: "0.4.0",
		`{"cniVersion":"2.0.0"}`: "2.0.0",
		`{"cniVersion":"\n"}`:    NewestVersion,
		`{"cniVersion":7}`:       NewestVersion,
		`{}`:                     NewestVersion,
		``:                       NewestVersion,
		`[`:                      NewestVersion,
	} {
		got := (&fake{}).call(t, "COMMAND=VERSION CONTAINERID= NETNS=dummy", stdin)
		full := `{"cniVersion":"` + want + `","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"
		if got != (output{0, full, ""}) {
			t.Errorf("%s: got %v", stdin, got)
		}
	}
}

// mib returns a document that is slightly longer than 1 MiB.
func mib() string { return `{"x":"` + strings.Repeat("x", 1<<20) + `"}` }

func TestErrorCodes(t *testing.T) {
	const (
		attached = `,"cni.dev/valid-attachments":`
		ports    = `,"runtimeConfig":{"portMappings":`
	)
	for name, test := range map[string]struct {
		env, stdin string
		code       Code
		details    string
	}{
		"no version":          {"COMMAND=ADD", `{"name":"pods"}`, CodeIncompatibleVersion, `cniVersion: is missing, which means 0.2.0: write "cniVersion": "1.0.0"`},
		"an old version":      {"COMMAND=ADD", `{"cniVersion":"0.2.0"}`, CodeIncompatibleVersion, `cniVersion: "0.2.0" is not supported: write one of 0.3.0, `},
		"a new version":       {"COMMAND=ADD", `{"cniVersion":"1.2.0"}`, CodeIncompatibleVersion, `"1.2.0" is not supported`},
		"CHECK before 0.4.0":  {"COMMAND=CHECK", `{"cniVersion":"0.3.1"}`, CodeIncompatibleVersion, `0.3.1 has no CHECK: write 0.4.0 or newer`},
		"GC before 1.1.0":     {"COMMAND=GC", `{"cniVersion":"1.0.0"}`, CodeIncompatibleVersion, `1.0.0 has no GC`},
		"STATUS before 1.1.0": {"COMMAND=STATUS", `{"cniVersion":"1.0.0"}`, CodeIncompatibleVersion, `1.0.0 has no STATUS`},

		"chained": {"COMMAND=ADD", validConfig + `,"prevResult":{"ips":[]}}`, CodeUnsupportedField, `prevResult: "{\"ips\":[]}" is not supported: tinylet-cni creates the interface`},
		"ipam":    {"COMMAND=ADD", validConfig + `,"ipam":{"type":"host-local"}}`, CodeUnsupportedField, `ipam.type: "\"host-local\"" is not supported`},

		"refused":   {"COMMAND=ADD", validConfig + `,"refuse":"use hostNetwork"}`, CodeInvalidConfig, `use hostNetwork`},
		"no reason": {"COMMAND=ADD", validConfig + `,"refuse":["x"]}`, CodeDecodingFailure, `refuse`},

		"no container":      {"COMMAND=ADD CONTAINERID=", validConfig + "}", CodeInvalidEnvironment, `CNI_CONTAINERID is missing`},
		"a container path":  {"COMMAND=ADD CONTAINERID=../x", validConfig + "}", CodeInvalidEnvironment, `CNI_CONTAINERID is "../x"`},
		"a long container":  {"COMMAND=DEL CONTAINERID=" + strings.Repeat("x", 201), validConfig + "}", CodeInvalidEnvironment, `CNI_CONTAINERID is "xxx`},
		"no interface":      {"COMMAND=ADD IFNAME=", validConfig + "}", CodeInvalidEnvironment, `CNI_IFNAME is missing`},
		"a long interface":  {"COMMAND=DEL IFNAME=abcdefghijklmnop", validConfig + "}", CodeInvalidEnvironment, `CNI_IFNAME is "abcdefghijklmnop"`},
		"interface ..":      {"COMMAND=ADD IFNAME=..", validConfig + "}", CodeInvalidEnvironment, `CNI_IFNAME is ".."`},
		"interface with /":  {"COMMAND=ADD IFNAME=a/b", validConfig + "}", CodeInvalidEnvironment, `CNI_IFNAME is "a/b"`},
		"no netns":          {"COMMAND=ADD NETNS=", validConfig + "}", CodeInvalidEnvironment, `CNI_NETNS is missing`},
		"a relative netns":  {"COMMAND=CHECK NETNS=run/x", validConfig + `,"prevResult":{}}`, CodeInvalidEnvironment, `CNI_NETNS is "run/x"`},
		"the host's netns":  {"COMMAND=ADD NETNS=/proc/thread-self/ns/net", validConfig + "}", CodeInvalidEnvironment, `the plugin's own network namespace`},
		"two at once":       {"COMMAND=ADD CONTAINERID= IFNAME=", validConfig + "}", CodeInvalidEnvironment, `CNI_CONTAINERID is missing: write at most 200 letters, digits, dots, underscores and hyphens, beginning with a letter or digit; CNI_IFNAME is missing`},
		"another verb":      {"COMMAND=add", validConfig + "}", CodeInvalidEnvironment, `CNI_COMMAND is "add": write ADD, `},
		"an unknown arg":    {"COMMAND=ADD ARGS=FOO=1", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: "FOO" is unknown: remove it, or add IgnoreUnknown=1`},
		"an arg without =":  {"COMMAND=ADD ARGS=IgnoreUnknown=1;FOO", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: "FOO" has no value`},
		"a path for a pod":  {"COMMAND=ADD ARGS=K8S_POD_NAME=../x", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: K8S_POD_NAME is "../x"`},
		"an arg's address":  {"COMMAND=ADD ARGS=IP=10.0", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: IP: "10.0" is not an IP address`},
		"a wrong boolean":   {"COMMAND=ADD ARGS=IgnoreUnknown=maybe", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: IgnoreUnknown is "maybe"`},
		"an arg's MAC":      {"COMMAND=ADD ARGS=MAC=01:00:00:00:00:00", validConfig + "}", CodeInvalidEnvironment, `CNI_ARGS: MAC: "01:00:00:00:00:00" is not a unicast MAC`},
		"a pod's long name": {"COMMAND=ADD ARGS=K8S_POD_NAME=" + strings.Repeat("x", 254), validConfig + "}", CodeInvalidEnvironment, `K8S_POD_NAME has 254 bytes: write at most 253`},

		"empty":              {"COMMAND=ADD", ``, CodeDecodingFailure, `"" is not an object`},
		"a list":             {"COMMAND=ADD", `[]`, CodeDecodingFailure, `"[]" is not an object`},
		"cut short":          {"COMMAND=ADD", validConfig, CodeDecodingFailure, `unexpected end of JSON input`},
		"more behind":        {"COMMAND=ADD", validConfig + "}}", CodeDecodingFailure, `invalid character '}' after top-level value`},
		"deep":               {"COMMAND=ADD", `{"x":` + strings.Repeat("[", 1<<16), CodeDecodingFailure, `exceeded max depth`},
		"a name of a number": {"COMMAND=ADD", `{"name":7}`, CodeDecodingFailure, `name: "7" is not a string`},
		"a boolean in text":  {"COMMAND=ADD", validConfig + `,"hairpin":"true"}`, CodeDecodingFailure, `hairpin: "\"true\"" is not a boolean: write true or false`},
		"a number in text":   {"COMMAND=ADD", validConfig + `,"mtu":"1500"}`, CodeDecodingFailure, `mtu: "\"1500\"" is not a number`},
		"one range":          {"COMMAND=ADD", validConfig + `,"ranges":{"subnet":"10.0.0.0/8"}}`, CodeDecodingFailure, `ranges: "{\"subnet\":\"10.0.0.0/8\"}" is not an array`},
		"ranges of IPAM":     {"COMMAND=ADD", validConfig + `,"ranges":[[{"subnet":"10.0.0.0/8"}]]}`, CodeDecodingFailure, `ranges[0]: `},
		"ports as text":      {"COMMAND=ADD", validConfig + ports + `"80"}}`, CodeDecodingFailure, `runtimeConfig.portMappings: `},

		"too long":            {"COMMAND=ADD", mib(), CodeInvalidConfig, `longer than 1 MiB`},
		"no name":             {"COMMAND=ADD", `{"cniVersion":"1.0.0"}`, CodeInvalidConfig, `name: is missing`},
		"a name with /":       {"COMMAND=ADD", `{"name":"a/b"}`, CodeInvalidConfig, `name: "a/b" is not a network name`},
		"no ranges":           {"COMMAND=ADD", `{"cniVersion":"1.0.0","name":"x"}`, CodeInvalidConfig, `ranges: is missing`},
		"no subnet":           {"COMMAND=ADD", validConfig + `,"ranges":[{}]}`, CodeInvalidConfig, `ranges[0]: subnet is missing`},
		"an address":          {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.1/8"}]}`, CodeInvalidConfig, `ranges[0].subnet: "10.0.0.1/8" has host bits: write the network, "10.0.0.0/8"`},
		"no network":          {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.0"}]}`, CodeInvalidConfig, `ranges[0].subnet: "10.0.0.0" is not in CIDR notation`},
		"small":               {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.0/31"}]}`, CodeInvalidConfig, `ranges[0]: subnet 10.0.0.0/31 is too small for a gateway and a pod`},
		"all":                 {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"0.0.0.0/0"}]}`, CodeInvalidConfig, `is not usable for pods`},
		"multicast":           {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"ff00::/64"}]}`, CodeInvalidConfig, `is not usable for pods`},
		"twice":               {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.0/8"},{"subnet":"10.1.0.0/16"}]}`, CodeInvalidConfig, `ranges[1]: subnet 10.1.0.0/16 overlaps subnet 10.0.0.0/8`},
		"a gateway elsewhere": {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.0/8","gateway":"11.0.0.1"}]}`, CodeInvalidConfig, `gateway 11.0.0.1 is not a host address of subnet 10.0.0.0/8: write an address from 10.0.0.1 on`},
		"the subnet itself":   {"COMMAND=ADD", validConfig + `,"ranges":[{"subnet":"10.0.0.0/8","gateway":"10.0.0.0"}]}`, CodeInvalidConfig, `gateway 10.0.0.0 is not a host address`},
		"nine ranges":         {"COMMAND=ADD", validConfig + `,"ranges":[1,2,3,4,5,6,7,8,9]}`, CodeDecodingFailure, `ranges[0]: "1" is not an object`},
		"many direct":         {"COMMAND=ADD", validConfig + `,"direct":["10.0.0.0/8"` + strings.Repeat(`,"10.0.0.0/8"`, 1024) + `]}`, CodeInvalidConfig, `direct: has 1025 elements: write at most 1024`},
		"direct":              {"COMMAND=ADD", validConfig + `,"direct":["10.0.0.0/8","x"]}`, CodeInvalidConfig, `direct[1]: "x" is not in CIDR notation`},
		"a small MTU":         {"COMMAND=ADD", validConfig + `,"mtu":67}`, CodeInvalidConfig, `mtu: 67 is too small`},
		"a large MTU":         {"COMMAND=ADD", validConfig + `,"mtu":65536}`, CodeInvalidConfig, `mtu: "65536" is out of range: write an integer from 0 to 65535`},
		"half an MTU":         {"COMMAND=ADD", validConfig + `,"mtu":1500.5}`, CodeInvalidConfig, `mtu: "1500.5" is out of range`},
		"a bridge":            {"COMMAND=ADD", validConfig + `,"bridge":"a b"}`, CodeInvalidConfig, `bridge: "a b" is not an interface name`},
		"a relative folder":   {"COMMAND=ADD", validConfig + `,"stateDir":"run"}`, CodeInvalidConfig, `stateDir: "run" is not a clean absolute path`},
		"a folder above":      {"COMMAND=ADD", validConfig + `,"stateDir":"/run/../etc"}`, CodeInvalidConfig, `stateDir: `},
		"host port 0":         {"COMMAND=ADD", validConfig + ports + `[{"hostPort":0,"containerPort":80}]}}`, CodeInvalidConfig, `runtimeConfig.portMappings[0]: hostPort is 0 and containerPort is 80`},
		"a large port":        {"COMMAND=ADD", validConfig + ports + `[{"hostPort":65536,"containerPort":80}]}}`, CodeInvalidConfig, `runtimeConfig.portMappings[0].hostPort: "65536"`},
		"a negative port":     {"COMMAND=ADD", validConfig + ports + `[{"hostPort":-1,"containerPort":80}]}}`, CodeInvalidConfig, `runtimeConfig.portMappings[0].hostPort: "-1"`},
		"another protocol":    {"COMMAND=ADD", validConfig + ports + `[{"hostPort":1,"containerPort":80,"protocol":"icmp"}]}}`, CodeInvalidConfig, `protocol "icmp" is unknown: write tcp, udp or sctp`},
		"a host address":      {"COMMAND=ADD", validConfig + ports + `[{"hostPort":1,"containerPort":80,"hostIP":"x"}]}}`, CodeInvalidConfig, `hostIP: "x" is not an IP address`},
		"a port twice":        {"COMMAND=ADD", validConfig + ports + `[{"hostPort":1,"containerPort":80},{"hostPort":1,"containerPort":81}]}}`, CodeInvalidConfig, `host port 1/tcp is already mapped to container port 80, not 81`},
		"a burst alone":       {"COMMAND=ADD", validConfig + `,"runtimeConfig":{"bandwidth":{"egressBurst":1}}}`, CodeInvalidConfig, `runtimeConfig.bandwidth: a burst without a rate`},
		"a large rate":        {"COMMAND=ADD", validConfig + `,"runtimeConfig":{"bandwidth":{"egressRate":18446744073709551616}}}`, CodeInvalidConfig, `runtimeConfig.bandwidth.egressRate: `},
		"an address for it":   {"COMMAND=ADD", validConfig + `,"runtimeConfig":{"ips":["127.0.0.1"]}}`, CodeInvalidConfig, `runtimeConfig.ips[0]: 127.0.0.1 is not usable for a container`},
		"a prefix's length":   {"COMMAND=ADD", validConfig + `,"args":{"cni":{"ips":["10.0.0.1/33"]}}}`, CodeInvalidConfig, `args.cni.ips[0]: "10.0.0.1/33" is not an address`},
		"a zone":              {"COMMAND=ADD", validConfig + `,"args":{"cni":{"ips":["fe80::1%eth0"]}}}`, CodeInvalidConfig, `args.cni.ips[0]: "fe80::1%eth0" is not an IP address`},
		"a multicast MAC":     {"COMMAND=ADD", validConfig + `,"runtimeConfig":{"mac":"01:00:5e:00:00:01"}}`, CodeInvalidConfig, `runtimeConfig.mac: "01:00:5e:00:00:01" is not a unicast MAC address`},
		"CHECK of nothing":    {"COMMAND=CHECK", validConfig + "}", CodeInvalidConfig, `prevResult: is missing`},
		"GC of all":           {"COMMAND=GC", validConfig + "}", CodeInvalidConfig, `cni.dev/valid-attachments: is missing, so nothing was collected: write []`},
		"GC half":             {"COMMAND=GC", validConfig + attached + `[{"containerID":"a"}]}`, CodeInvalidConfig, `cni.dev/valid-attachments[0]: containerID "a" and ifname "" are not an attachment`},
		"GC of an object":     {"COMMAND=GC", validConfig + attached + `{}}`, CodeDecodingFailure, `cni.dev/valid-attachments: "{}" is not an array`},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := f.call(t, test.env, test.stdin)
			e := failure(t, got)
			if got.exit != 1 || e.Code != test.code || !strings.Contains(e.Details, test.details) || e.Msg == "" {
				t.Errorf("exit %d, %+v\nwant code %d with %s", got.exit, e, test.code, test.details)
			}
			if f.calls != nil {
				t.Errorf("the network was called: %v", f.calls)
			}
		})
	}
}

func TestErrorsOfTheNetwork(t *testing.T) {
	plain := errors.New("make bridge tinylet0: operation not permitted")
	again := &Error{Code: CodeTryAgainLater, Msg: "the bridge is busy", Details: "a \"quote\"\n\xff", Err: plain}
	for name, test := range map[string]struct {
		verb    string
		err     error
		code    Code
		msg     string
		details string
	}{
		"plain":       {"ADD", plain, CodeInternal, plain.Error(), ""},
		"with a code": {"ADD", again, CodeTryAgainLater, "the bridge is busy", "a \"quote\"\n\ufffd: " + plain.Error()},
		"wrapped":     {"CHECK", fmt.Errorf("check c1: %w", &Error{Code: CodeIOFailure, Msg: "it is gone"}), CodeIOFailure, "it is gone", "check c1: it is gone"},
		"DEL":         {"DEL", plain, CodeInternal, plain.Error(), ""},
		"GC":          {"GC", plain, CodeInternal, plain.Error(), ""},
		"STATUS":      {"STATUS", plain, CodePluginNotAvailable, "the network is not ready", plain.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			stdin := validConfig + `,"cni.dev/valid-attachments":[]`
			if test.verb == "CHECK" {
				stdin += `,"prevResult":{}`
			}
			for _, f := range []*fake{{err: test.err}, {opened: test.err}} {
				got := f.call(t, "COMMAND="+test.verb, stdin+"}")
				want := errorOutput{"1.1.0", test.code, test.msg, test.details}
				if e := failure(t, got); got.exit != 1 || e != want {
					t.Errorf("exit %d, %+v, want %+v", got.exit, e, want)
				}
			}
		})
	}
}

func TestErrorIsInTheVersionOfTheConfiguration(t *testing.T) {
	for _, v := range []string{"0.3.1", "1.0.0", "9.9.9"} {
		got := (&fake{}).call(t, "COMMAND=ADD", `{"cniVersion":"`+v+`"}`)
		if v == "9.9.9" {
			v = NewestVersion
		}
		if e := failure(t, got); e.CNIVersion != v {
			t.Errorf("got %+v, want version %s", e, v)
		}
	}
}

func TestDelOfWhatIsGone(t *testing.T) {
	for name, test := range map[string]struct{ env, stdin, netns, network string }{
		"no netns":         {"NETNS=", validConfig + "}", "", "pods"},
		"gone netns":       {"NETNS=/run/netns/gone", validConfig + "}", "", "pods"},
		"netns in a file":  {"NETNS=/proc/version/ns", validConfig + "}", "", "pods"},
		"relative netns":   {"NETNS=run/x", validConfig + "}", "", "pods"},
		"the host's netns": {"NETNS=/proc/thread-self/ns/net", validConfig + "}", "", "pods"},
		"it is meant":      {"NETNS=/proc/thread-self/ns/net NETNS_OVERRIDE=True", validConfig + "}", "/proc/thread-self/ns/net", "pods"},
		"another file":     {"NETNS=/proc/version", validConfig + "}", "/proc/version", "pods"},
		"args":             {"ARGS=FOO", validConfig + "}", "", "pods"},
		"prevResult":       {"", validConfig + `,"prevResult":"x"}`, "", "pods"},
		"half a result":    {"", validConfig + `,"prevResult":{"ips":[`, "", "pods"},
		"no version":       {"", `{"name":"pods"}`, "", "pods"},
		"another version":  {"", `{"name":"pods","cniVersion":"9.9.9"}`, "", "pods"},
		"wrong types":      {"", `{"mtu":"x","ranges":7,"name":"pods","hairpin":3,"stateDir":"x","bridge":""}`, "", "pods"},
		"wrong ports":      {"", `{"name":"pods","runtimeConfig":{"portMappings":[{"hostPort":0}],"bandwidth":7,"mac":"x","ips":["x"]}}`, "", "pods"},
		"no name":          {"", `{"name":"../x"}`, "", ""},
		"cut short":        {"", `{"name":"pods","bri`, "", "pods"},
		"no JSON":          {"", `x`, "", ""},
		"nothing":          {"", ``, "", ""},
		"too long":         {"", mib(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			if got := f.call(t, "COMMAND=DEL "+test.env, test.stdin); got != (output{}) {
				t.Fatalf("got %v", got)
			}
			a := f.at
			if f.calls == nil || a.ID != (ID{"c1", "eth0"}) || a.NetNS != test.netns || a.Config.Name != test.network {
				t.Errorf("got %v %+v", f.calls, a)
			}
			if c := a.Config; c.Bridge != DefaultBridge || c.StateDir != DefaultStateDir || !c.Hairpin || c.MTU != 0 {
				t.Errorf("what cannot be read is not the default: %+v", c)
			}
			if a.Ports != nil || a.MAC != nil || a.IPs != nil {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestHostsNetNSCanBeMeant(t *testing.T) {
	f := &fake{}
	got := f.call(t, "COMMAND=ADD NETNS=/proc/thread-self/ns/net NETNS_OVERRIDE=1", validConfig+"}")
	if got.exit != 0 || f.at.NetNS != "/proc/thread-self/ns/net" {
		t.Errorf("got %v, %q", got, f.at.NetNS)
	}
}

func TestAttachment(t *testing.T) {
	f := &fake{}
	got := f.call(t, "COMMAND=ADD ARGS=K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=1-2;X=y;IgnoreUnknown=1;",
		`{"cniVersion":"1.0.0","name":"p\u006fds","type":"tinylet-cni","capabilities":{"ips":true},"unknown":[{"a":null}],
		"bridge":"br0","mtu":1400,"masquerade":true,"hairpin":false,"promiscuous":true,"stateDir":"/var/lib/x",
		"ranges":[{"subnet":"10.42.0.0/24","gateway":"10.42.0.254"},{"subnet":"fd00::/64"}],"direct":["10.0.0.0/8","fd00::/8"],
		"runtimeConfig":{
			"portMappings":[
				{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP","HostIP":""},
				{"hostPort":8080,"containerPort":80,"protocol":"tcp"},
				{"hostPort":53,"containerPort":5353,"protocol":"udp","hostIP":"127.0.0.1"},
				{"hostPort":9,"containerPort":9,"protocol":"sctp","hostIP":"::"},
				{"hostPort":10,"containerPort":10,"protocol":"","hostIP":null}],
			"bandwidth":{"IngressRate":1000000,"IngressBurst":4294967295,"egressRate":18446744073709551615,"egressBurst":1},
			"io.kubernetes.cri.pod-annotations":{"a":"b"}},
		"args":{"cni":{"ips":["10.42.0.9/24","::ffff:10.42.0.10","fd00::9"],"mac":"0a:58:00:00:00:01","labels":[]},"other":7}}`)
	if got.exit != 0 {
		t.Fatal(got)
	}
	want := Attachment{
		ID: ID{"c1", "eth0"}, NetNS: "/proc/1/ns/none",
		Pod: Pod{"kube-system", "web-0", "1-2"},
		Config: Config{
			CNIVersion: "1.0.0", Name: "pods", Type: Type, Bridge: "br0", MTU: 1400, Masquerade: true, Promiscuous: true, StateDir: "/var/lib/x",
			Ranges: []ipam.Range{
				{Prefix: netip.MustParsePrefix("10.42.0.0/24"), Gateway: netip.MustParseAddr("10.42.0.254")},
				{Prefix: netip.MustParsePrefix("fd00::/64")},
			},
			Direct: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		},
		Ports: []Port{
			{8080, 80, "tcp", netip.Addr{}},
			{53, 5353, "udp", netip.MustParseAddr("127.0.0.1")},
			{9, 9, "sctp", netip.IPv6Unspecified()},
			{10, 10, "tcp", netip.Addr{}},
		},
		Bandwidth: Bandwidth{1000000, 4294967295, 18446744073709551615, 1},
		IPs:       []netip.Addr{netip.MustParseAddr("10.42.0.9"), netip.MustParseAddr("10.42.0.10"), netip.MustParseAddr("fd00::9")},
		MAC:       net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 1},
	}
	if diff := cmp.Diff(want, f.at, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want.Config, f.config, compare); diff != "" {
		t.Errorf("the network is opened with another configuration (-want +got):\n%s", diff)
	}
}

func TestWhichAddressHolds(t *testing.T) {
	const (
		runtime = `"runtimeConfig":{"ips":["10.42.0.1"],"mac":"02:00:00:00:00:01"}`
		args    = `"args":{"cni":{"ips":["10.42.0.2"],"mac":"02:00:00:00:00:02"}}`
		vars    = " ARGS=IP=10.42.0.3/24;MAC=02:00:00:00:00:03"
	)
	for _, test := range []struct {
		env, stdin string
		last       byte
	}{
		{vars, validConfig + "," + args + "," + runtime + "}", 1},
		{vars, validConfig + "," + args + "}", 2},
		{vars, validConfig + "}", 3},
		{"", validConfig + "}", 0},
	} {
		f := &fake{}
		if got := f.call(t, "COMMAND=ADD"+test.env, test.stdin); got.exit != 0 {
			t.Fatal(got)
		}
		if test.last == 0 {
			if f.at.IPs != nil || f.at.MAC != nil {
				t.Errorf("got %+v", f.at)
			}
			continue
		}
		if len(f.at.IPs) != 1 || f.at.IPs[0] != netip.AddrFrom4([4]byte{10, 42, 0, test.last}) || f.at.MAC[5] != test.last {
			t.Errorf("got %v and %v, want those with %d", f.at.IPs, f.at.MAC, test.last)
		}
	}
}

func TestValidAttachments(t *testing.T) {
	const one = `[{"containerID":"a","ifname":"eth0","more":1}]`
	for stdin, want := range map[string][]ID{
		`"cni.dev/valid-attachments":` + one:                               {{"a", "eth0"}},
		`"cni.dev/attachments":` + one:                                     {{"a", "eth0"}},
		`"cni.dev/attachments":` + one + `,"cni.dev/valid-attachments":[]`: nil,
		`"cni.dev/valid-attachments":[],"cni.dev/attachments":` + one:      nil,
		`"cni.dev/valid-attachments":null`:                                 nil,
	} {
		f := &fake{}
		got := f.call(t, "COMMAND=GC CONTAINERID= IFNAME= NETNS=", validConfig+","+stdin+"}")
		if got != (output{}) || f.network != "pods" || !slices.Equal(f.valid, want) || f.calls == nil {
			t.Errorf("%s: got %v, %q %v", stdin, got, f.network, f.valid)
		}
	}
}

func TestByHand(t *testing.T) {
	f := &fake{}
	got := f.call(t, "", "")
	if got.exit != 1 || got.stdout != "" || !strings.Contains(got.stderr, "/opt/cni/bin") || f.calls != nil {
		t.Errorf("got %v", got)
	}
}

func TestStdinAndStdoutFail(t *testing.T) {
	f := &fake{}
	broken := iotest.ErrReader(errors.New("broken"))
	var out strings.Builder
	c := Call{
		Env:    func(name string) string { return map[string]string{"CNI_COMMAND": "ADD"}[name] },
		Stdin:  io.MultiReader(strings.NewReader(`{"cniVersion":"1.0.0","name":`), broken),
		Stdout: &out,
	}
	if exit := c.Run(f.open); exit != 1 {
		t.Errorf("exit %d", exit)
	}
	if e := failure(t, output{stdout: out.String()}); e.Code != CodeIOFailure || e.Details != "broken" || e.CNIVersion != "1.0.0" {
		t.Errorf("got %+v", e)
	}
	_, shut := io.Pipe()
	if err := shut.Close(); err != nil {
		t.Fatal(err)
	}
	c.Env = func(string) string { return "VERSION" }
	c.Stdin, c.Stdout = strings.NewReader("{}"), shut
	if exit := c.Run(f.open); exit != 1 {
		t.Errorf("an answer that nobody gets gives exit %d", exit)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	e := &Error{Code: CodeInvalidConfig, Msg: "msg", Details: "details", Err: cause}
	if e.Error() != "msg: details: cause" || !errors.Is(e, cause) {
		t.Errorf("got %q", e.Error())
	}
}
