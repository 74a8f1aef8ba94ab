package cni

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden results")

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// full returns a result with all fields.
func full() Result {
	return Result{
		Interfaces: []Interface{
			{Name: "tinylet0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1500},
			{Name: "veth0123456789", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
			{Name: "eth0", MAC: net.HardwareAddr{0x0a, 0x58, 10, 42, 0, 7}, MTU: 1400, Sandbox: `/run/netns/a"b`},
		},
		IPs: []IP{
			{Interface: 2, Address: netip.MustParsePrefix("10.42.0.7/24"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Interface: 2, Address: netip.MustParsePrefix("fd00::7/64"), Gateway: netip.MustParseAddr("fd00::1")},
			{Interface: NoInterface, Address: netip.MustParsePrefix("192.0.2.1/32")},
			{Interface: 0, Address: netip.MustParsePrefix("10.42.0.1/24")},
		},
		Routes: []Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Dst: netip.MustParsePrefix("::/0")},
			{Dst: netip.MustParsePrefix("10.0.0.0/8"), MTU: 1300, AdvMSS: 1260, Priority: 5, Table: 100, Scope: 253},
		},
	}
}

// expected returns the fields of a result that a version has.
func expected(v specVersion, r Result) Result {
	if v < spec110 {
		for i := range r.Interfaces {
			r.Interfaces[i].MTU = 0
		}
		for i := range r.Routes {
			r.Routes[i] = Route{Dst: r.Routes[i].Dst, Gateway: r.Routes[i].Gateway}
		}
	}
	return r
}

func TestResultOfEachVersion(t *testing.T) {
	for i, v := range versions {
		t.Run(v, func(t *testing.T) {
			f := &fake{result: full()}
			got := f.call(t, "COMMAND=ADD", strings.Replace(validConfig, "1.1.0", v, 1)+"}")
			if got.exit != 0 || got.stderr != "" {
				t.Fatalf("exit %d, %s%s", got.exit, got.stdout, got.stderr)
			}
			file := filepath.Join("testdata", "results", v+".json")
			if *update {
				if err := os.WriteFile(file, []byte(got.stdout), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.stdout); diff != "" {
				t.Errorf("the result has changed (-want +got):\n%s", diff)
			}
			back, fault := readResult([]byte(strings.TrimSpace(got.stdout)))
			if fault != nil {
				t.Fatal(fault)
			}
			if diff := cmp.Diff(expected(specVersion(i), full()), *back, compare); diff != "" {
				t.Errorf("what was written is not what is read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmptyResult(t *testing.T) {
	got := (&fake{}).call(t, "COMMAND=ADD", validConfig+"}")
	want := `{"cniVersion":"1.1.0","interfaces":[],"ips":[],"routes":[],"dns":{}}` + "\n"
	if got.exit != 0 || got.stdout != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestInvalidResultIsRejected(t *testing.T) {
	sense := netip.MustParsePrefix("10.42.0.7/24")
	for name, r := range map[string]Result{
		"no address":           {IPs: []IP{{Interface: NoInterface}}},
		"no such interface":    {IPs: []IP{{Address: sense}}},
		"a negative interface": {IPs: []IP{{Address: sense, Interface: -2}}},
		"no destination":       {Routes: []Route{{}}},
	} {
		got := (&fake{result: r}).call(t, "COMMAND=ADD", validConfig+"}")
		if got.exit != 1 || !strings.Contains(got.stdout, `"code":999`) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestPreviousResults(t *testing.T) {
	for name, test := range map[string]struct {
		json string
		want Result
		err  string
	}{
		"empty": {json: `{}`},
		"null":  {json: `{"interfaces":null,"ips":null,"routes":null,"dns":null}`},
		"with what is not known": {json: `{"cniVersion":"0.4.0","dns":{"nameservers":["10.0.0.1"]},"ips":[{"version":"4","address":"10.0.0.2/8","gateway":""}]}`,
			want: Result{IPs: []IP{{Interface: NoInterface, Address: netip.MustParsePrefix("10.0.0.2/8")}}}},
		"no interface as 0.3 writes it": {json: `{"ips":[{"address":"10.0.0.2/8","interface":-1}]}`,
			want: Result{IPs: []IP{{Interface: NoInterface, Address: netip.MustParsePrefix("10.0.0.2/8")}}}},
		"infiniband": {json: `{"interfaces":[{"name":"ib0","mac":"00:01:02:03:04:05:06:07"}]}`,
			want: Result{Interfaces: []Interface{{Name: "ib0", MAC: net.HardwareAddr{0, 1, 2, 3, 4, 5, 6, 7}}}}},
		"the last of two holds": {json: `{"interfaces":[{"name":"a"}],"interfaces":[{"name":"b"}]}`,
			want: Result{Interfaces: []Interface{{Name: "b"}}}},
		"another type":      {json: `[]`, err: `prevResult: "[]" is not an object`},
		"interface is text": {json: `{"interfaces":["eth0"]}`, err: `prevResult.interfaces[0]: "\"eth0\"" is not an object`},
		"no CIDR":           {json: `{"ips":[{"address":"10.0.0.2"}]}`, err: `prevResult.ips[0].address: "10.0.0.2" is not in CIDR notation`},
		"no address":        {json: `{"ips":[{}]}`, err: `prevResult: result has an invalid address`},
		"beyond":            {json: `{"ips":[{"address":"10.0.0.2/8","interface":1}],"interfaces":[{}]}`, err: `interface index 1 of 1 interfaces`},
		"no MAC":            {json: `{"interfaces":[{"mac":"x"}]}`, err: `prevResult.interfaces[0].mac: "x"`},
		"no gateway":        {json: `{"routes":[{"dst":"0.0.0.0/0","gw":"x"}]}`, err: `prevResult.routes[0].gw: "x"`},
		"mtu":               {json: `{"routes":[{"dst":"0.0.0.0/0","mtu":-1}]}`, err: `prevResult.routes[0].mtu: "-1"`},
		"too many":          {json: `{"routes":[` + strings.Repeat(`{"dst":"0.0.0.0/0"},`, maxResultItems) + `{}]}`, err: `prevResult.routes: has 1025 elements`},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := f.call(t, "COMMAND=CHECK", validConfig+`,"prevResult":`+test.json+"}")
			if test.err != "" {
				if msg := failure(t, got).Details; got.exit != 1 || !strings.Contains(msg, test.err) {
					t.Errorf("got %q, want %q in it", msg, test.err)
				}
				return
			}
			if got != (output{}) || f.prev == nil {
				t.Fatalf("got %v", got)
			}
			if diff := cmp.Diff(test.want, *f.prev, compare); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
