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
	host   byte
	closed bool
}

func (a *addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, a.host)} }
func (a *addressed) Close() error         { a.closed = true; return nil }

// callers is a listener whom each comes from another address.
type callers struct {
	net.Listener
	n byte
}

func (c *callers) Accept() (net.Conn, error) {
	c.n++
	return &addressed{host: c.n}, nil
}
func (c *callers) Close() error { return nil }

// TestDoor counts who is in.
func TestDoor(t *testing.T) {
	d := newDoor(&callers{})
	defer d.Close()
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

// TestDoorBurst has one host open many connections at once, as an API server
// does: none of its own is displaced, and others still come in.
func TestDoorBurst(t *testing.T) {
	d := newDoor(nil)
	var in []*conn
	var all []*addressed
	for range maxStrangers + maxWaiting {
		raw := &addressed{host: 1}
		all = append(all, raw)
		if c := d.enter(raw); c != nil {
			in = append(in, c)
		}
	}
	if len(in) != maxStrangers || len(d.waiting) != maxWaiting {
		t.Fatalf("%d are in, %d wait", len(in), len(d.waiting))
	}
	if d.next() != nil {
		t.Fatal("there is no room")
	}
	for i := 0; i < len(in); i++ { // each shows who it is, and makes room
		in[i].promote()
		for c := d.next(); c != nil; c = d.next() {
			in = append(in, c)
		}
	}
	if len(in) != maxStrangers+maxWaiting || d.known != len(in) {
		t.Errorf("%d came in, %d are known", len(in), d.known)
	}
	for i, raw := range all {
		if raw.closed {
			t.Errorf("number %d was displaced", i)
		}
	}
	select {
	case <-d.room:
	default:
		t.Error("nobody was told of the room")
	}
}

// TestDoorCrowd has one host take all places and all of the queue: it
// displaces its own then, and another host displaces one of its.
func TestDoorCrowd(t *testing.T) {
	d := newDoor(nil)
	var crowd []*addressed
	for range maxStrangers + maxWaiting {
		raw := &addressed{host: 1}
		crowd = append(crowd, raw)
		d.enter(raw)
	}
	if c := d.enter(&addressed{host: 2}); c == nil || !crowd[0].closed {
		t.Errorf("another host: %v, the oldest closed: %v", c, crowd[0].closed)
	}
	if c := d.enter(&addressed{host: 1}); c == nil || !crowd[1].closed {
		t.Errorf("one more of the crowd: %v, its oldest closed: %v", c, crowd[1].closed)
	}
	if len(d.strangers) != maxStrangers || len(d.waiting) != maxWaiting {
		t.Errorf("%d strangers, %d wait", len(d.strangers), len(d.waiting))
	}
	waits := d.waiting[0].Conn.(*addressed)
	d.Listener = &callers{}
	if err := d.Close(); err != nil || !waits.closed {
		t.Errorf("close: %v, who waited is closed: %v", err, waits.closed)
	}
}

// TestDoorClosed: who arrives while it closes is let go, and not kept waiting
// for a place that nobody gives.
func TestDoorClosed(t *testing.T) {
	d := newDoor(&callers{})
	for range maxStrangers {
		d.enter(&addressed{host: 1})
	}
	d.Close()
	late := &addressed{host: 1}
	if c := d.enter(late); c != nil || !late.closed || len(d.waiting) != 0 {
		t.Errorf("in: %v, closed: %v, waiting: %d", c != nil, late.closed, len(d.waiting))
	}
}
