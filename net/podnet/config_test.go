package podnet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
)

func TestConfigRefused(t *testing.T) {
	for _, row := range []struct {
		name, want string
		change     func(*cni.Config)
	}{
		{"no bridge", "name", func(c *cni.Config) { c.Bridge = "" }},
		{"a path for a bridge", "name", func(c *cni.Config) { c.Bridge = "../../x" }},
		{"no folder", "Dir is required", func(c *cni.Config) { c.StateDir = "" }},
		{"two of a family", "of the same family", func(c *cni.Config) { c.Ranges[1].Prefix = prefix("10.77.0.0/24") }},
		{"too small", "too small", func(c *cni.Config) { c.Ranges[0].Prefix = prefix("10.77.0.0/31") }},
		{"host bits", "write 10.77.0.0/24", func(c *cni.Config) { c.Kept = []ipam.Range{{Prefix: prefix("10.77.0.1/24")}} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cni.Config{Bridge: "pods0", StateDir: t.TempDir(), Ranges: []ipam.Range{{Prefix: prefix(podsV4)}, {Prefix: prefix(podsV6)}}}
			row.change(&c)
			if n, err := New(c); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%+v, %v", n, err)
			}
		})
	}
}

// TestBridgeAddresses has IPv6 networks with the same gateway.
func TestBridgeAddresses(t *testing.T) {
	for _, row := range []struct{ now, kept, want string }{
		{"fd00:1::/56", "fd00:1::/64", "[fd00:1::1/56]"},
		{"fd00:1::/64", "fd00:1::/56", "[fd00:1::1/56]"},
		{"fd00:1::/64", "fd00:2::/64", "[fd00:1::1/64 fd00:2::1/64]"},
		{"10.1.0.0/16", "10.1.0.0/24", "[10.1.0.1/16 10.1.0.1/24]"},
	} {
		c, err := config{cni.Config{Bridge: "pods0", StateDir: "/x", Ranges: []ipam.Range{{Prefix: prefix(row.now)}}, Kept: []ipam.Range{{Prefix: prefix(row.kept)}}}}.complete()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.bridge().Addresses); got != row.want {
			t.Errorf("%s and %s: %s, want %s", row.now, row.kept, got, row.want)
		}
	}
}

// TestWithoutRanges is a configuration of which too little is left to set a pod
// up, but all that taking one down needs.
func TestWithoutRanges(t *testing.T) {
	l := newLab(t, nil)
	p := l.start(nil)
	c := l.net.cfg.Config
	c.Ranges = nil
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := l.on(func() error { _, err := n.Setup(l.newPod().Pod); return err }); err == nil {
		t.Error("a pod was set up")
	}
	if err := l.on(n.Ready); err == nil || !strings.Contains(err.Error(), "no range") {
		t.Errorf("ready without a range: %v", err)
	}
	l.must(func() error { return n.Teardown(p.ID) })
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestReady(t *testing.T) {
	l := newLab(t, nil)
	l.must(l.net.Ready)
	if left := l.state(); left != "" {
		t.Errorf("it made:\n%s", left)
	}
	l.run("ip", "link", "add", "pods0", "type", "veth", "peer", "name", "x")
	if err := l.on(l.net.Ready); !errors.Is(err, link.ErrOtherKind) {
		t.Errorf("a veth has the bridge's name: %v", err)
	}
	l.run("ip", "link", "del", "pods0")
	l.start(nil)
	l.run("nft", "flush", "chain", "inet", "tinylet", "guard")
	l.must(l.net.Ready)
}
