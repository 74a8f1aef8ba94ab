package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// The configurations of containerd and CRI-O for the same ports and limits.
const (
	containerd = `"runtimeConfig":{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":""},` +
		`{"HostPort":5353,"ContainerPort":53,"Protocol":"udp","HostIP":"192.0.2.1"}],` +
		`"bandwidth":{"IngressRate":8000000,"IngressBurst":4294967295,"EgressRate":4000000,"EgressBurst":4294967295},` +
		`"io.kubernetes.cri.pod-annotations":{"a":"b"}}`
	crio = `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},` +
		`{"hostPort":5353,"containerPort":53,"protocol":"udp","hostIP":"192.0.2.1"}],` +
		`"bandwidth":{"ingressRate":8000000,"ingressBurst":4294967295,"egressRate":4000000,"egressBurst":4294967295}}`
)

// fixed requests addresses, which would otherwise be any of the ranges.
const fixed = `"args":{"cni":{"ips":["10.88.0.2","fd00:88::2"]}}`

// TestLife attaches, checks and detaches a container in each version.
func TestLife(t *testing.T) {
	for version, spelling := range map[string]string{"0.3.0": crio, "0.3.1": containerd, "0.4.0": crio, "1.0.0": containerd, "1.1.0": crio} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t)
			c := n.newContainer()
			config := n.config(version, spelling, fixed)
			added := n.must("ADD", c, config)
			if diff := cmp.Diff(expectedLines(version, c), added.lines()); diff != "" {
				t.Errorf("the result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(furnished, n.inside(c)); diff != "" {
				t.Errorf("in the container (-want +got):\n%s", diff)
			}
			want := "port *:8080/TCP to 10.88.0.2 port 80\nport *:8080/TCP to fd00:88::2 port 80\nport 192.0.2.1:5353/UDP to 10.88.0.2 port 53\n"
			if left := n.left(); !strings.Contains(left, want) || !strings.Contains(left, `"tinylet:default/web"`) {
				t.Errorf("there is\n%s", left)
			}
			if got := n.ingress(added.Interfaces[1].Name); got != 8000000 {
				t.Errorf("ingress is limited to %d bit/s", got)
			}
			check := n.call("CHECK", c, n.config(version, spelling, `"prevResult":`+added.text))
			if want := map[bool]cni.Code{true: cni.CodeIncompatibleVersion}[version < "0.4.0"]; check.Code != want {
				t.Errorf("CHECK: %s", check.text)
			}
			if again := n.must("ADD", c, config); !cmp.Equal(expectedLines(version, c), again.lines()) {
				t.Errorf("a second ADD says %s", again.text)
			}
			for range 2 {
				if a := n.must("DEL", c, n.config(version, spelling, `"prevResult":`+added.text)); a.text != "" {
					t.Errorf("DEL says %s", a.text)
				}
				if left := n.left(); left != "" {
					t.Errorf("left:\n%s", left)
				}
			}
		})
	}
}

// expectedLines returns the expected result in the format of lines.
func expectedLines(version string, c *container) []string {
	mtu, family := [2]string{"0", "0"}, [2]string{"", ""}
	if version == "1.1.0" {
		mtu = [2]string{"1400", "1400"}
	}
	if version < "1.0.0" {
		family = [2]string{"4", "6"}
	}
	return []string{
		"version " + version,
		"pods0 mtu " + mtu[0] + " in ",
		"veth mtu " + mtu[0] + " in ",
		"eth0 mtu " + mtu[1] + " in " + c.path() + " with 0a:58:0a:58:00:02",
		"ip" + family[0] + " 10.88.0.2/24 by 10.88.0.1 on 2",
		"ip" + family[1] + " fd00:88::2/64 by fd00:88::1 on 2",
		"route 0.0.0.0/0 by 10.88.0.1",
		"route ::/0 by fd00:88::1",
	}
}

// lines returns a result without its random parts.
func (a *answer) lines() []string {
	lines := []string{"version " + a.CNIVersion}
	for _, i := range a.Interfaces {
		line := fmt.Sprintf("%s mtu %d in %s", i.Name, i.MTU, i.Sandbox)
		switch {
		case i.Mac == "":
			line += " without a MAC"
		case i.Sandbox != "":
			line += " with " + i.Mac
		case strings.HasPrefix(i.Name, "veth"):
			line = strings.Replace(line, i.Name, "veth", 1)
		}
		lines = append(lines, line)
	}
	for _, ip := range a.IPs {
		lines = append(lines, fmt.Sprintf("ip%s %s by %s on %d", ip.Version, ip.Address, ip.Gateway, *ip.Interface))
	}
	for _, r := range a.Routes {
		lines = append(lines, fmt.Sprintf("route %s by %s", r.Dst, r.GW))
	}
	return lines
}

// furnished is the expected output of inside.
var furnished = []string{
	"lo up true",
	"eth0 up true mtu 1400 with 0a:58:0a:58:00:02",
	"10.88.0.2/24", "fd00:88::2/64",
	"0.0.0.0/0 by 10.88.0.1", "::/0 by fd00:88::1",
	"egress 4000000",
}

// inside returns the interfaces, addresses and routes in a container.
func (n *node) inside(c *container) (lines []string) {
	n.Helper()
	h, err := link.OpenIn(c.ns)
	if err != nil {
		n.Fatal(err)
	}
	defer h.Close()
	lo, err := h.Link("lo")
	if err != nil {
		n.Fatal(err)
	}
	l, err := h.Link("eth0")
	if err != nil {
		n.Fatal(err)
	}
	lines = append(lines, fmt.Sprintf("lo up %t", lo.Up), fmt.Sprintf("eth0 up %t mtu %d with %v", l.Up, l.MTU, l.MAC))
	addresses, err := h.Addresses(l.Index)
	if err != nil {
		n.Fatal(err)
	}
	for _, a := range addresses {
		if a.Global() {
			lines = append(lines, a.Prefix.String())
		}
	}
	for _, v6 := range []bool{false, true} {
		if r, err := h.DefaultRoute(v6); err == nil {
			lines = append(lines, fmt.Sprintf("%v by %v", r.Dst, r.Gateway))
		}
	}
	rate, err := h.ShapedTo(l.Index)
	if err != nil {
		n.Fatal(err)
	}
	return append(lines, fmt.Sprintf("egress %d", rate.BitsPerSecond))
}

// ingress returns the limit of a link of the node, in bit/s.
func (n *node) ingress(name string) uint64 {
	n.Helper()
	h, err := link.OpenIn(n.host)
	if err != nil {
		n.Fatal(err)
	}
	defer h.Close()
	l, err := h.Link(name)
	if err != nil {
		n.Fatal(err)
	}
	rate, err := h.ShapedTo(l.Index)
	if err != nil {
		n.Fatal(err)
	}
	return rate.BitsPerSecond
}

// TestAsked requests addresses and a MAC address in each place for them.
func TestAsked(t *testing.T) {
	const ips, mac = `["10.88.0.77/24","fd00:88::77"]`, `"0a:00:00:00:00:07"`
	for name, row := range map[string]struct{ more, args string }{
		"by the runtime":     {more: `"runtimeConfig":{"ips":` + ips + `,"mac":` + mac + `}`},
		"by the arguments":   {more: `"args":{"cni":{"ips":` + ips + `,"mac":` + mac + `}}`},
		"by the environment": {more: `"ranges":[{"subnet":"10.88.0.0/24"}]`, args: "IP=10.88.0.77;MAC=0a:00:00:00:00:07"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.newContainer()
			env := c.environment()
			env["CNI_COMMAND"], env["CNI_ARGS"] = "ADD", row.args
			config := n.config("1.0.0", row.more)
			a := n.callWith(env, config)
			if a.Code != 0 {
				t.Fatal(a.text)
			}
			got := n.inside(c)
			if a.Interfaces[2].Mac != "0a:00:00:00:00:07" || a.IPs[0].Address != "10.88.0.77/24" ||
				!slices.Contains(got, "eth0 up true mtu 1400 with 0a:00:00:00:00:07") || !slices.Contains(got, "10.88.0.77/24") {
				t.Errorf("got %s and %q", a.text, got)
			}
			if row.args == "" && (a.IPs[1].Address != "fd00:88::77/64" || !slices.Contains(got, "fd00:88::77/64")) {
				t.Errorf("got %s and %q", a.text, got)
			}
			// It is another's now.
			env["CNI_CONTAINERID"], env["CNI_NETNS"] = "other", n.newContainer().path()
			if a := n.callWith(env, config); !strings.Contains(a.Msg, "10.88.0.77 is already allocated to") {
				t.Errorf("somebody else gets %s", a.text)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	n := newNode(t)
	a := n.must("VERSION", nil, `{"cniVersion":"1.0.0"}`)
	if want := []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}; !cmp.Equal(want, a.SupportedVersions) || a.CNIVersion != "1.0.0" {
		t.Errorf("got %s", a.text)
	}
}

func TestStatus(t *testing.T) {
	n := newNode(t)
	if a := n.must("STATUS", nil, n.config("1.1.0")); a.text != "" {
		t.Errorf("got %s", a.text)
	}
	if a := n.call("STATUS", nil, n.config("1.1.0", `"bridge":"a/b"`)); a.Code != cni.CodeInvalidConfig {
		t.Errorf("got %s", a.text)
	}
	if a := n.call("STATUS", nil, n.config("1.1.0", `"stateDir":"/proc/nowhere"`)); a.Code != cni.CodePluginNotAvailable || !strings.Contains(a.Details, "/proc/nowhere") {
		t.Errorf("got %s", a.text)
	}
}

// TestCheck checks a container whose network was changed without the plugin.
func TestCheck(t *testing.T) {
	for name, row := range map[string]struct {
		change func(n *node, c *container, a *answer) error
		want   string
	}{
		"nothing is": {func(*node, *container, *answer) error { return nil }, ""},
		"the interface is gone": {func(n *node, _ *container, a *answer) error {
			h, err := link.OpenIn(n.host)
			if err != nil {
				return err
			}
			defer h.Close()
			return h.DeleteLink(a.Interfaces[1].Name)
		}, "no longer as it was set up"},
		"the way out is gone": {func(_ *node, c *container, _ *answer) error {
			h, err := link.OpenIn(c.ns)
			if err != nil {
				return err
			}
			defer h.Close()
			return h.DeleteRoute(link.Route{Dst: netip.MustParsePrefix("0.0.0.0/0")})
		}, "default route"},
		"another has the address": {func(_ *node, _ *container, a *answer) error {
			a.text = strings.Replace(a.text, `"10.88.0.2/24"`, `"10.88.0.3/24"`, 1)
			return nil
		}, "address 10.88.0.3 is not in its lease"},
		"the ports are gone": {func(n *node, _ *container, _ *answer) error {
			return n.on(func() error {
				table, err := nft.Open()
				if err != nil {
					return err
				}
				defer table.Close()
				ports, err := table.Ports()
				return errors.Join(err, table.RemovePorts(ports))
			})
		}, "port"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.newContainer()
			a := n.must("ADD", c, n.config("1.0.0", crio, fixed))
			if err := row.change(n, c, &a); err != nil {
				t.Fatal(err)
			}
			check := n.call("CHECK", c, n.config("1.0.0", crio, `"prevResult":`+a.text))
			if (check.Code == 0) != (row.want == "") || !strings.Contains(check.Msg, row.want) {
				t.Errorf("CHECK: %q", check.text)
			}
			if disabled := n.call("CHECK", c, n.config("1.0.0", crio, `"disableCheck":true`, `"prevResult":`+a.text)); disabled.Code != 0 {
				t.Errorf("CHECK that is disabled: %s", disabled.text)
			}
			n.must("DEL", c, n.config("1.0.0"))
			if left := n.left(); left != "" {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}
