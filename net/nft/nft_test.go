package nft

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/tinylet/tinylet/net/netns"
)

// run runs a program in a namespace, and returns what it prints.
func run(t testing.TB, ns *os.File, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("the program %s is missing", name)
	}
	var out []byte
	if err := netns.Do(ns, func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func open(t testing.TB, ns *os.File) *Table {
	t.Helper()
	var table *Table
	if err := netns.Do(ns, func() (err error) {
		table, err = Open()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// both is a base of both IP versions.
var both = Base{
	Bridge: "pods0",
	Pods:   prefixes("10.244.1.0/24", "fd00:244:1::/64"),
	Direct: prefixes("10.244.2.0/24", "172.16.0.0/12", "fd00:244::/47"),

	Masquerade: true,
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func port(t testing.TB, host string, protocol Protocol, number uint16, pod, owner string) Port {
	t.Helper()
	p := Port{Protocol: protocol, Host: number, Owner: owner}
	to := netip.MustParseAddrPort(pod)
	p.Pod, p.Target = to.Addr(), to.Port()
	if host != "" {
		p.HostIP = netip.MustParseAddr(host)
	}
	return p
}
