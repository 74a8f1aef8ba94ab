package cni

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/ipam"
)

func conflists() map[string]Config {
	small := Default()
	small.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.3.0/24")}}
	large := Config{
		Type: Type, Bridge: "br\"0", MTU: 1400, Masquerade: true, Promiscuous: true, StateDir: "/run/a\\b/ü",
		Ranges: []ipam.Range{
			{Prefix: netip.MustParsePrefix("10.42.3.0/24"), Gateway: netip.MustParseAddr("10.42.3.1")},
			{Prefix: netip.MustParsePrefix("fd00:3::/64")},
		},
		Reserved: []uint16{10248, 10250},
		Direct:   []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00::/16")},
	}
	moved := Default()
	moved.Ranges, moved.Kept = small.Ranges, []ipam.Range{{Prefix: netip.MustParsePrefix("10.42.0.0/16")}, {Prefix: netip.MustParsePrefix("10.7.0.0/24"), Gateway: netip.MustParseAddr("10.7.0.9")}}
	refused := Default()
	refused.Refuse = `pods have "hostNetwork: true" here`
	return map[string]Config{"small": small, "large": large, "moved": moved, "refused": refused}
}

func TestConflist(t *testing.T) {
	for name, c := range conflists() {
		t.Run(name, func(t *testing.T) {
			got, err := Conflist(c, "pods")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "conflists", name+".conflist")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the list has changed (-want +got):\n%s", diff)
			}
			back, err := ParseConflist(got)
			if err != nil {
				t.Fatal(err)
			}
			c.Name, c.CNIVersion = "pods", DefaultVersion
			if diff := cmp.Diff(c, back, compare); diff != "" {
				t.Errorf("what was written is not what is read (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConflistOfUser has lists that a user has written, of one version or of several.
func TestConflistOfUser(t *testing.T) {
	for versions, want := range map[string]string{
		`"cniVersion":"0.3.1"`:                                             "0.3.1",
		`"cniVersion":"1.0.0","cniVersions":["1.0.0","1.1.0"]`:             "1.1.0",
		`"cniVersions":["0.4.0","1.2.0","1.0.0"]`:                          "1.0.0",
		`"cniVersions":["1.1.0"],"cniVersion":"1.0.0","disableCheck":true`: "1.1.0",
	} {
		c, err := ParseConflist([]byte(`{` + versions + `,"name":"pods","plugins":[{"type":"tinylet-cni","ranges":[{"subnet":"10.1.0.0/24"}]}]}`))
		if err != nil || c.CNIVersion != want || c.DisableCheck != strings.Contains(versions, "disableCheck") {
			t.Errorf("%s: %+v, %v", versions, c, err)
		}
	}
}

func TestConflistOfWhatIsWrong(t *testing.T) {
	c := conflists()["small"]
	wrong := func(change func(*Config)) Config {
		w := c
		change(&w)
		return w
	}
	for _, test := range []struct {
		config     Config
		name, want string
	}{
		{c, "../x", "name: "},
		{c, "", "name: "},
		{wrong(func(c *Config) { c.Ranges = nil }), "pods", "ranges: "},
		{wrong(func(c *Config) { c.Ranges = []ipam.Range{{}} }), "pods", "plugins[0].ranges[0].subnet: "},
		{wrong(func(c *Config) { c.Kept = []ipam.Range{{}} }), "pods", "plugins[0].kept[0].subnet: "},
		{wrong(func(c *Config) { c.Refuse = "a\x00b" }), "pods", "plugins[0].refuse: "},
		{wrong(func(c *Config) { c.Bridge = "" }), "pods", "plugins[0].bridge: "},
		{wrong(func(c *Config) { c.StateDir = "x" }), "pods", "plugins[0].stateDir: "},
		{wrong(func(c *Config) { c.StateDir = "/x\x00" }), "pods", "plugins[0].stateDir: "},
		{wrong(func(c *Config) { c.MTU = -1 }), "pods", "plugins[0].mtu: "},
		{wrong(func(c *Config) { c.Direct = []netip.Prefix{{}} }), "pods", "plugins[0].direct[0]: "},
	} {
		_, err := Conflist(test.config, test.name)
		if e, ok := errors.AsType[*Error](err); !ok || !strings.HasPrefix(e.Details, test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

func TestReserved(t *testing.T) {
	for _, list := range []string{"[0]", "[65536]", "[-1]", `["80"]`, "80", "[1.5]"} {
		text := `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "tinylet-cni", "ranges": [{"subnet": "10.1.0.0/24"}], "reserved": ` + list + `}]}`
		if c, err := ParseConflist([]byte(text)); err == nil {
			t.Errorf("%s was read as %v", list, c.Reserved)
		}
	}
}

func TestForeignConflists(t *testing.T) {
	const (
		ours  = `{"type":"tinylet-cni","ranges":[{"subnet":"10.0.0.0/8"}],"name":"x","cniVersion":"9"}`
		other = `{"type":"bridge","ranges":[[1]],"mtu":"x"}`
	)
	for list, foreign := range map[string]bool{
		ours:                     false,
		"":                       true,
		other:                    true,
		ours + "," + other:       true,
		`"tinylet-cni"`:          true,
		`{}`:                     true,
		`{"type":7}`:             true,
		`{"type":"Tinylet-cni"}`: true,
	} {
		_, err := ParseConflist([]byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[` + list + `]}`))
		if errors.Is(err, ErrForeign) != foreign || !foreign && err != nil {
			t.Errorf("%s: got %v", list, err)
		}
	}
	for _, broken := range []string{``, `[]`, `{"plugins":7}`, `{"plugins":[` + ours + `]}`, `{"name":"pods","plugins":[` + ours + `]}`, `{"plugins":[`} {
		if _, err := ParseConflist([]byte(broken)); err == nil || errors.Is(err, ErrForeign) {
			t.Errorf("%s: got %v", broken, err)
		}
	}
	if _, err := ParseConflist([]byte(`{}`)); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v", err)
	}
}
