package server

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func TestNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32", "[2001:db8::1]:5": "2001:db8::/64", "[2001:db8::2]:6": "2001:db8::/64",
		"[2001:db8:0:1::2]:6": "2001:db8:0:1::/64", "[fe80::1%eth0]:5": "fe80::/64",
	} {
		if got := network(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))); got.String() != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := network(new(net.UnixAddr)); got.IsValid() {
		t.Errorf("%s", got)
	}
	if got := network(new(net.TCPAddr)); got.IsValid() {
		t.Errorf("%s", got)
	}
}

func TestDisplaced(t *testing.T) {
	for text, want := range map[string]int{
		"": -1, "a": 0, "ab": 0, "abb": 1, "bab": 0, "abcb": 1, "aabbb": 2, "aabb": 0, "abbbbbbbbbbbbbba": 1,
	} {
		var strangers []*conn
		for _, r := range text {
			strangers = append(strangers, &conn{from: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r)}), 32)})
		}
		got := displaced(strangers)
		if want < 0 {
			if got != nil {
				t.Errorf("%q: %v", text, got)
			}
		} else if got != strangers[want] {
			t.Errorf("%q: not number %d", text, want)
		}
	}
}

// addressed is a connection from somewhere.
type addressed struct {
	net.Conn
	closed bool
}

func (a *addressed) RemoteAddr() net.Addr { return new(net.TCPAddr) }
func (a *addressed) Close() error         { a.closed = true; return nil }

type endless struct{ net.Listener }

func (endless) Accept() (net.Conn, error) { return new(addressed), nil }

// TestDoor counts who is in.
func TestDoor(t *testing.T) {
	d := &door{Listener: endless{}}
	enter := func() *conn {
		c, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*conn)
	}
	want := func(known, strangers int) {
		t.Helper()
		if got := fmt.Sprint(d.known, len(d.strangers)); got != fmt.Sprint(known, strangers) {
			t.Errorf("known and strangers: %s, want %d %d", got, known, strangers)
		}
	}
	var known []*conn
	for range maxKnown {
		c := enter()
		c.promote()
		c.promote()
		known = append(known, c)
	}
	want(maxKnown, 0)
	one := enter()
	one.promote() // there is no place
	want(maxKnown, 1)
	if one.trusted.Load() {
		t.Error("more are known than may be")
	}
	known[0].Close()
	known[0].Close()
	want(maxKnown-1, 1)
	known[0].promote()
	want(maxKnown-1, 1)
	one.promote()
	want(maxKnown, 0)
	first := enter()
	for range maxStrangers {
		enter()
	}
	want(maxKnown, maxStrangers)
	if !first.Conn.(*addressed).closed {
		t.Error("the oldest is not the one to go")
	}
	first.promote()
	first.Close()
	want(maxKnown, maxStrangers)
	for _, c := range known {
		if c != known[0] && c.Conn.(*addressed).closed {
			t.Error("who is known was displaced")
		}
	}
}
