package plugin

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// Configurations of the test. The killed call has killedPorts. Either of the other two may
// exist together with it. Only one port is UDP, because the kernel is slow to list UDP
// connections.
const (
	killedPorts = `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":5353,"containerPort":53,"protocol":"udp"}]}`
	freedPorts  = `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":8443,"containerPort":443,"protocol":"tcp"}]}`
	otherPorts  = `"runtimeConfig":{"portMappings":[{"hostPort":8081,"containerPort":80,"protocol":"tcp"},{"hostPort":8444,"containerPort":443,"protocol":"tcp"}]}`
	noneValid   = `"cni.dev/valid-attachments":[]`
)

// sequels are the calls of a runtime after an ADD was killed: DEL, GC, or none.
var sequels = []struct {
	name  string
	clean func(*node, *container)
}{
	{"DEL", func(n *node, c *container) { n.must("DEL", c, n.config("1.1.0", killedPorts)) }},
	{"GC", func(n *node, _ *container) { n.must("GC", nil, n.config("1.1.0", noneValid)) }},
	{"nothing", nil},
}

var every = flag.Bool("every", false, "TestKilled: try each sequel after each system call, not one of them in turn")

// TestKilled kills the process of the first ADD on a node before each system call that may
// change something beyond the process. Most of the time is waiting, so that several nodes
// run concurrently.
func TestKilled(t *testing.T) {
	n := newNode(t)
	acts, text := n.addKilled(n.newContainer(), n.config("1.1.0", killedPorts), 0)
	if len(n.parsed(text).IPs) != 2 {
		t.Fatalf("an ADD that is not killed answers %s", text)
	}
	var killed atomic.Int32
	several(len(acts)*len(sequels), func(i int) {
		nth, sequel := i/len(sequels), sequels[i%len(sequels)]
		if !*every && nth%len(sequels) != i%len(sequels) {
			return
		}
		t.Run(fmt.Sprintf("%d %s/%s", nth+1, acts[nth], sequel.name), func(t *testing.T) {
			newNode(t).killed(nth+1, sequel.clean)
			killed.Add(1)
		})
	})
	t.Logf("%d killed, before each of %d calls: %v", killed.Load(), len(acts), acts)
}

// several calls do for each i, in several goroutines.
func several(times int, do func(i int)) {
	var (
		wg   sync.WaitGroup
		next atomic.Int32
	)
	for range 4 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < times; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// TestKilledMending kills the process of an ADD that creates the rules again while another
// container exists. The next call finds either no rules or all of them.
func TestKilledMending(t *testing.T) {
	n := newNode(t)
	n.robbed()
	acts, _ := n.addKilled(n.newContainer(), n.config("1.1.0", killedPorts), 0)
	var killed atomic.Int32
	several(len(acts), func(i int) {
		t.Run(fmt.Sprintf("%d %s", i+1, acts[i]), func(t *testing.T) {
			n := newNode(t)
			lives, added := n.robbed()
			n.addKilled(n.newContainer(), n.config("1.1.0", killedPorts), i+1)
			n.must("ADD", n.newContainer(), n.config("1.1.0"))
			n.must("CHECK", lives, n.config("1.1.0", otherPorts, `"prevResult":`+added.text))
			n.must("GC", nil, n.config("1.1.0", noneValid))
			n.nothing()
			killed.Add(1)
		})
	})
	t.Logf("%d killed, before each of %d calls: %v", killed.Load(), len(acts), acts)
}

// robbed adds a container with host ports, and deletes the rules.
func (n *node) robbed() (lives *container, added answer) {
	n.Helper()
	lives = n.newContainer()
	added = n.must("ADD", lives, n.config("1.1.0", otherPorts))
	if err := n.on(func() error {
		table, err := nft.Open()
		if err != nil {
			return err
		}
		return errors.Join(table.Delete(), table.Close())
	}); err != nil {
		n.Fatal(err)
	}
	return lives, added
}

// killed kills an ADD before its nth system call of acts, and checks the calls after it.
func (n *node) killed(nth int, clean func(*node, *container)) {
	n.Helper()
	// A new namespace may inherit the setting of the host.
	if err := n.on(func() error { return link.SetSysctl("net/ipv4/ip_forward", "0") }); err != nil {
		n.Fatal(err)
	}
	dead, other := n.newContainer(), n.newContainer()
	deads, others := n.config("1.1.0", killedPorts), n.config("1.1.0", otherPorts)
	if acts, text := n.addKilled(dead, deads, nth); len(acts) != nth || text != "" {
		n.Errorf("not killed: it has done %v and answered %s", acts, text)
	}
	left := n.addresses(dead)
	if clean != nil {
		clean(n, dead)
		n.nothing(dead)
		left = nil
		deads, others = others, n.config("1.1.0", freedPorts)
	}
	given := n.whole(other, n.must("ADD", other, others), others)
	again := n.whole(dead, n.must("ADD", dead, deads), deads)
	for _, a := range given {
		if slices.Contains(left, a) || slices.Contains(again, a) {
			n.Errorf("%v was given twice", a)
		}
	}
	n.must("DEL", other, others)
	n.must("GC", nil, n.config("1.1.0", noneValid))
	n.nothing(dead, other)
}

// parsed returns the parsed output of a process.
func (n *node) parsed(text string) (a answer) {
	n.Helper()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		n.Fatalf("the answer %q: %v", text, err)
	}
	a.text = text
	return a
}

// nothing checks that nothing of the containers' networks exists.
func (n *node) nothing(gone ...*container) {
	n.Helper()
	left := n.left()
	for _, dir := range []string{n.run, n.state} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				left += "file " + path + "\n"
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.Fatal(err)
		}
	}
	for _, c := range gone {
		if has := n.addresses(c); has != nil {
			left += fmt.Sprintf("addresses %v in the container\n", has)
		}
	}
	if left != "" {
		n.Errorf("left:\n%s", left)
	}
}

// whole checks the network of a container and the shared state, and returns the
// container's addresses.
func (n *node) whole(c *container, added answer, config string) (addresses []netip.Addr) {
	n.Helper()
	for _, ip := range added.IPs {
		addresses = append(addresses, netip.MustParsePrefix(ip.Address).Addr())
	}
	if has := n.addresses(c); len(addresses) != 2 || !cmp.Equal(addresses, has, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		n.Fatalf("the answer has %v, the container %v", addresses, has)
	}
	n.must("CHECK", c, strings.TrimSuffix(config, "}")+`,"prevResult":`+added.text+"}")
	n.shared()
	n.answers(c, addresses[0])
	return addresses
}

// addresses returns the addresses in a container, nil if it has no interface.
func (n *node) addresses(c *container) (all []netip.Addr) {
	n.Helper()
	h, err := link.OpenIn(c.ns)
	if err != nil {
		n.Fatal(err)
	}
	defer h.Close()
	l, err := h.Link("eth0")
	if errors.Is(err, link.ErrNotFound) {
		return nil
	}
	if err != nil {
		n.Fatal(err)
	}
	all = []netip.Addr{}
	have, err := h.Addresses(l.Index)
	if err != nil {
		n.Fatal(err)
	}
	for _, a := range have {
		if a.Global() {
			all = append(all, a.Prefix.Addr())
		}
	}
	return all
}

// shared checks the kernel parameters for forwarding.
func (n *node) shared() {
	n.Helper()
	want := map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/pods0/route_localnet": "1",
		"net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/lo/accept_ra": "2", "net/ipv6/conf/pods0/accept_ra": "0",
	}
	got := maps.Clone(want)
	if err := n.on(func() (err error) {
		for key := range got {
			var e error
			got[key], e = link.Sysctl(key)
			err = errors.Join(err, e)
		}
		return err
	}); err != nil {
		n.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.Errorf("settings (-want +got):\n%s", diff)
	}
}

// answers opens a connection from the node to a container.
func (n *node) answers(c *container, address netip.Addr) {
	n.Helper()
	at := netip.AddrPortFrom(address, 80)
	var s net.Listener
	if err := netns.Do(c.ns, func() (err error) {
		s, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		n.Fatal(err)
	}
	defer s.Close()
	if err := netns.Do(n.host, func() error {
		conn, err := net.DialTimeout("tcp", at.String(), 3*time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	}); err != nil {
		n.Error(err)
	}
}
