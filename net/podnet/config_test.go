package podnet

import (
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/ipam"
)

func TestConfigRefused(t *testing.T) {
	for _, row := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"no bridge", "name", func(c *Config) { c.Bridge = "" }},
		{"a path for a bridge", "name", func(c *Config) { c.Bridge = "../../x" }},
		{"no folder", "no folder for leases", func(c *Config) { c.StateDir = "" }},
		{"two of a family", "of one family", func(c *Config) { c.Ranges[1].Prefix = prefix("10.77.0.0/24") }},
		{"too small", "too small", func(c *Config) { c.Ranges[0].Prefix = prefix("10.77.0.0/31") }},
		{"host bits", "write 10.77.0.0/24", func(c *Config) { c.Kept = []ipam.Range{{Prefix: prefix("10.77.0.1/24")}} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := Config{Bridge: "pods0", StateDir: t.TempDir(), Ranges: []ipam.Range{{Prefix: prefix(podsV4)}, {Prefix: prefix(podsV6)}}}
			row.change(&c)
			if n, err := New(c); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%+v, %v", n, err)
			}
		})
	}
}

// TestWithoutRanges is a configuration of which too little is left to set a pod
// up, but all that taking one down needs.
func TestWithoutRanges(t *testing.T) {
	l := newLab(t, nil)
	p := l.start(nil)
	c := l.net.cfg
	c.Ranges = nil
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := l.on(func() error { _, err := n.Setup(l.newPod().Pod); return err }); err == nil {
		t.Error("a pod was set up")
	}
	l.must(func() error { return n.Teardown(p.ID) })
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}
