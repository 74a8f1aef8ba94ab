package podnet

import (
	"errors"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/nft"
)

// TestReservedPorts has pods want ports on which nobody listens yet.
func TestReservedPorts(t *testing.T) {
	l := newLab(t, func(c *cni.Config) { c.Reserved = []uint16{10250} })
	for _, port := range []nft.Port{
		{Protocol: nft.TCP, Host: 10250, Target: 80},
		{Protocol: nft.TCP, Host: 10250, Target: 80, HostIP: addrs(hostOutside)[0]},
		{Protocol: nft.TCP, Host: 10250, Target: 80, HostIP: addrs("::1")[0]},
	} {
		p := l.newPod()
		p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}, port}
		err := l.on(func() error { _, err := l.net.Setup(p.Pod); return err })
		var reserved *PortReserved
		if !errors.As(err, &reserved) || reserved.Port.Host != 10250 || !strings.Contains(err.Error(), "another hostPort") {
			t.Errorf("%v: %v", port, err)
		}
		if left := l.state(); left != "" {
			t.Errorf("%v has left\n%s", port, left)
		}
	}
	l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.UDP, Host: 10250, Target: 80}} })
}

// TestReservedSince has pods with ports that are reserved by a later
// configuration.
func TestReservedSince(t *testing.T) {
	l := newLab(t, nil)
	p := l.start(func(p *Pod) {
		p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 10250, Target: 80}, {Protocol: nft.TCP, Host: 8080, Target: 80}}
	})
	serve(t, p.ns, "tcp", 80)
	l.net.cfg.Reserved = []uint16{10250}
	for _, broken := range []string{"", "flush ruleset", "flush map inet tinylet ports4"} {
		if broken != "" {
			l.run("nft", broken)
		}
		l.must(l.net.Ensure)
		if seen, err := ask(l.outside, "tcp", hostOutside+":8080"); err != nil || seen != outside {
			t.Errorf("%q: the other port: %q, %v", broken, seen, err)
		}
		if seen, err := ask(l.outside, "tcp", hostOutside+":10250"); err == nil {
			t.Errorf("%q: the reserved port is answered, as %s", broken, seen)
		}
		l.must(func() error { return l.net.Check(p.Pod) })
	}
	l.must(func() error { return l.net.Teardown(p.ID) })
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}
