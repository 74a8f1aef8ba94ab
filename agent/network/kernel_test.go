package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
)

// inNetwork runs what is to be tested in a network of its own, behind programs.
func inNetwork(t *testing.T, programs string, test func()) {
	t.Helper()
	ns := nstest.New(t)
	for _, name := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: the test makes links and tables with it", name)
		}
	}
	if err := netns.Do(ns, func() error {
		for line := range strings.Lines(programs) {
			words := strings.Fields(line)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
		}
		test()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestUplinkAddresses(t *testing.T) {
	expect := func(t *testing.T, want string) {
		t.Helper()
		if got, err := UplinkAddresses(); err != nil || fmt.Sprint(got) != want {
			t.Errorf("uplink addresses %v, %v; want %s", got, err, want)
		}
	}
	const two = `ip link add eth0 type veth peer name far0
ip link set eth0 up
ip link set far0 up
ip addr add 192.0.2.7/24 dev eth0
ip addr add 2001:db8::7/64 dev eth0 nodad
ip link add cni0 type bridge
ip link set cni0 up
ip addr add 10.88.0.1/24 dev cni0
`
	inNetwork(t, two, func() { expect(t, "[]") })
	inNetwork(t, two+"ip route add default via 192.0.2.1", func() { expect(t, "[192.0.2.7 2001:db8::7 192.0.2.1]") })
}

// TestDismantle takes away what tinylet has made, and nothing else.
func TestDismantle(t *testing.T) {
	const others = "nft add table inet others\nip link add br0 type bridge\n"
	left := func() (found []string) {
		for _, words := range [][]string{{"ip", "-br", "link", "show", "type", "bridge"}, {"nft", "list", "tables"}} {
			out, err := exec.Command(words[0], words[1:]...).Output()
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(string(out)) {
				if words := strings.Fields(line); words[0] == "table" {
					found = append(found, words[2])
				} else {
					found = append(found, words[0])
				}
			}
		}
		slices.Sort(found)
		return found
	}
	made := func() error {
		h, err := link.Open()
		if err != nil {
			return err
		}
		defer h.Close()
		if _, err := h.EnsureBridge(link.Bridge{Name: "tinylet0"}); err != nil {
			return err
		}
		table, err := nft.Open()
		if err != nil {
			return err
		}
		defer table.Close()
		_, err = table.Ensure(nft.Base{Bridge: "tinylet0", Pods: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}, Masquerade: true}, nil)
		return err
	}
	for name, tt := range map[string]struct {
		programs, bridge string
		make             func() error
		want             string
	}{
		"nothing":   {others, "tinylet0", func() error { return nil }, "[br0 others]"},
		"ours":      {others, "tinylet0", made, "[br0 others]"},
		"another's": {others, "br0", made, "[br0 others tinylet0]"},
		"no bridge": {others + "ip link add tinylet0 type veth peer name far0", "tinylet0", func() error { return nil }, "[br0 others]"},
		"somebody's on": {others, "tinylet0", func() error {
			return errors.Join(made(), exec.Command("ip", "link", "add", "x", "master", "tinylet0", "type", "veth", "peer", "name", "y").Run())
		}, "[br0 others tinylet0]"},
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t, tt.programs, func() {
				if err := errors.Join(tt.make(), Dismantle(tt.bridge), Dismantle(tt.bridge)); err != nil {
					t.Error(err)
				}
				if got := left(); fmt.Sprint(got) != tt.want {
					t.Errorf("left %v, want %s", got, tt.want)
				}
			})
		})
	}
}
