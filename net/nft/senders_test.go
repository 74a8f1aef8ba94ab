package nft

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

func openSenders(t testing.TB, ns *os.File) *Senders {
	t.Helper()
	var s *Senders
	if err := netns.Do(ns, func() (err error) {
		s, err = OpenSenders()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Supported(); errors.Is(err, ErrNoBridgeFamily) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return s
}

func sender(port, mac string, addresses ...string) Sender {
	hardware, _ := net.ParseMAC(mac)
	s := Sender{Port: port, MAC: hardware}
	for _, a := range addresses {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	return s
}

var (
	senderA = sender("veth0000000001", "0a:58:0a:58:00:02", "10.88.0.2", "fd00:88::2")
	senderB = sender("veth0000000002", "0a:58:0a:58:00:03", "10.88.0.3")
)

func these(all ...Sender) func() ([]Sender, error) {
	return func() ([]Sender, error) { return all, nil }
}

// listSenders is the table as the nft program lists it.
func listSenders(t testing.TB, ns *os.File) string {
	t.Helper()
	return run(t, ns, "nft", "list", "table", "bridge", tableName)
}

func TestSendersGolden(t *testing.T) {
	ns := nstest.New(t)
	s := openSenders(t, ns)
	if err := s.Sync(these(senderA)); err != nil {
		t.Fatal(err)
	}
	got := listSenders(t, ns)
	const file = "testdata/senders.nft"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func TestSendersSync(t *testing.T) {
	ns := nstest.New(t)
	s := openSenders(t, ns)
	if err := s.Verify(); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	if err := s.Remove(senderA); err != nil {
		t.Errorf("remove without a table: %v", err)
	}
	if err := s.Sync(these(senderA, senderB)); err != nil {
		t.Fatal(err)
	}
	before := listSenders(t, ns)
	for _, edit := range []string{
		"",
		"delete table bridge tinylet",
		"flush table bridge tinylet",
		"flush set bridge tinylet macs",
		"add element bridge tinylet ports { stranger }",
		"insert rule bridge tinylet from-pods accept",
		"add chain bridge tinylet from-pods { policy drop; }",
		"add table bridge tinylet { flags dormant; }",
		"add chain bridge tinylet service-spy",
		"add chain bridge tinylet spy { type filter hook input priority 0; policy drop; }",
		"delete table bridge tinylet; add table bridge tinylet; add set bridge tinylet addresses4 { type ipv4_addr; }",
	} {
		t.Run(edit, func(t *testing.T) {
			if edit != "" {
				run(t, ns, "nft", edit)
			}
			if err := s.Verify(); err != nil && !strings.Contains(err.Error(), "nftables table bridge tinylet ") {
				t.Errorf("the error does not name the table: %v", err)
			}
			if err := s.Sync(these(senderA, senderB)); err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(); err != nil {
				t.Errorf("mended: %v", err)
			}
			if d := cmp.Diff(wordsOf(before), wordsOf(listSenders(t, ns))); d != "" {
				t.Errorf("mended (-before +after):\n%s", d)
			}
		})
	}
	if err := s.Sync(these(senderB)); err != nil {
		t.Fatal(err)
	}
	if got := listSenders(t, ns); strings.Contains(got, senderA.Port) || !strings.Contains(got, senderB.Port) {
		t.Errorf("without the first:\n%s", got)
	}
	for range 2 {
		if err := s.Delete(); err != nil {
			t.Fatal(err)
		}
	}
}

// wordsOf has the elements of sets, which the kernel lists in no order, in one.
func wordsOf(listing string) map[string]int {
	words := map[string]int{}
	for _, w := range strings.Fields(strings.ReplaceAll(listing, ",", " ")) {
		words[w]++
	}
	return words
}

func TestSendersAddRemove(t *testing.T) {
	ns := nstest.New(t)
	s := openSenders(t, ns)
	for range 2 {
		if err := s.Add(senderA, these(senderA)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(senderB, nil); err != nil { // the rules are there
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Remove(senderA); err != nil {
			t.Fatal(err)
		}
	}
	if got := listSenders(t, ns); strings.Contains(got, senderA.Port) || !strings.Contains(got, senderB.Port) {
		t.Errorf("after the removal:\n%s", got)
	}
	run(t, ns, "nft", "flush table bridge tinylet")
	if err := s.Add(senderA, these(senderA, senderB)); err != nil {
		t.Fatal(err)
	}
	if got := listSenders(t, ns); !strings.Contains(got, senderA.Port) || !strings.Contains(got, senderB.Port) {
		t.Errorf("after a flush:\n%s", got)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Sender{
		"no interface":  {MAC: senderA.MAC},
		"no MAC":        {Port: "veth1"},
		"no address":    {Port: "veth1", MAC: senderA.MAC, Addresses: []netip.Addr{{}}},
		"a long MAC":    {Port: "veth1", MAC: make(net.HardwareAddr, 20)},
		"a link's zone": {Port: "veth1", MAC: senderA.MAC, Addresses: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}},
	} {
		if err := s.Add(bad, these()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// One that makes no sense keeps no other from being restricted.
	if err := s.Sync(these(Sender{}, senderB)); err != nil {
		t.Error(err)
	}
}

// TestSendersVerifyConcurrently has another process create the table again and again.
func TestSendersVerifyConcurrently(t *testing.T) {
	ns := nstest.New(t)
	s, other := openSenders(t, ns), openSenders(t, ns)
	if err := s.Sync(these(senderA)); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := other.remake(0, these(senderA)); err != nil {
				<-stop
				ended <- err
				return
			}
		}
	}()
	for range 3000 {
		if err := s.Verify(); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestSendersBesideTable(t *testing.T) {
	ns := nstest.New(t)
	s, table := openSenders(t, ns), open(t, ns)
	ensure(t, table, both, true)
	if err := s.Sync(these(senderA)); err != nil {
		t.Fatal(err)
	}
	if err := table.Verify(both); err != nil {
		t.Error(err)
	}
	if err := table.Delete(); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

func TestSendersUnsupported(t *testing.T) {
	s := &Senders{&Table{}}
	b := s.table.begin(0)
	b.newTable("")
	for _, errno := range []unix.Errno{unix.EOPNOTSUPP, unix.EAFNOSUPPORT} {
		err := s.failed("try", explain(&messageError{b.messages[1], errno}))
		if !errors.Is(err, ErrNoBridgeFamily) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := s.failed("try", unix.EPERM); errors.Is(err, ErrNoBridgeFamily) {
		t.Error(err)
	}
}

func TestLinkLocal(t *testing.T) {
	if got := LinkLocal(senderA.MAC); got != netip.MustParseAddr("fe80::858:aff:fe58:2") {
		t.Error(got)
	}
	if got := LinkLocal(nil); got.IsValid() {
		t.Error(got)
	}
}

func FuzzSenderKeys(f *testing.F) {
	s := senderSets()[2]
	f.Add([]byte{unix.NFPROTO_BRIDGE, 0, 0, 0, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, e := range readEntries(s, decodeElements(attributesOf(data))) {
			if len(e.key) != 28 || e.set != setSender4 {
				t.Errorf("%q", e)
			}
		}
	})
}

// BenchmarkSender adds and removes one pod.
func BenchmarkSender(b *testing.B) {
	s := openSenders(b, nstest.New(b))
	if err := s.Sync(these(senderB)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Add(senderA, nil); err != nil {
			b.Fatal(err)
		}
		if err := s.Remove(senderA); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSendersUnchanged(b *testing.B) {
	s := openSenders(b, nstest.New(b))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Sync(these(senderA, senderB)); err != nil {
			b.Fatal(err)
		}
	}
}
