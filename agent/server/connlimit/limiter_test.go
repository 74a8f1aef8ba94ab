package connlimit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSource(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32", "[2001:db8::1]:5": "2001:db8::/64", "[2001:db8::2]:6": "2001:db8::/64",
		"[2001:db8:0:1::2]:6": "2001:db8:0:1::/64", "[fe80::1%eth0]:5": "fe80::/64",
	} {
		if got := source(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))); got.String() != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := source(new(net.UnixAddr)); got.IsValid() {
		t.Errorf("%s", got)
	}
	if got := source(new(net.TCPAddr)); got.IsValid() {
		t.Errorf("%s", got)
	}
}

func TestOfLargestSource(t *testing.T) {
	for text, want := range map[string]int{
		"a": 0, "ab": 0, "abb": 1, "bab": 0, "abcb": 1, "aabbb": 2, "aabb": 0, "abbbbbbbbbbbbbba": 1,
	} {
		var pending []*Conn
		for _, r := range text {
			pending = append(pending, &Conn{source: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r)}), 32)})
		}
		if got := pendingToDisplace(pending); got != pending[want] {
			t.Errorf("%q: not number %d", text, want)
		}
	}
}

// addressed is a connection with a remote address.
type addressed struct {
	net.Conn
	host   byte
	closed bool
}

func (a *addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, a.host)} }
func (a *addressed) Close() error         { a.closed = true; return nil }

// callers is a listener whose connections each have another address.
type callers struct {
	net.Listener
	n byte
}

func (c *callers) Accept() (net.Conn, error) {
	c.n++
	return &addressed{host: c.n}, nil
}
func (c *callers) Close() error { return nil }

// Limits of these tests.
const (
	maxPromoted = maxPending + maxWaiting
	maxPending  = 16
	maxWaiting  = 64
)

func limited(l net.Listener) *Listener {
	return New(l, Config{Promoted: maxPromoted, Pending: maxPending, Waiting: maxWaiting})
}

// TestPlaces checks the number of promoted and pending connections.
func TestPlaces(t *testing.T) {
	d := limited(&callers{})
	defer d.Close()
	enter := func() *Conn {
		c, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*Conn)
	}
	want := func(promoted, pending int) {
		t.Helper()
		if got := fmt.Sprint(len(d.promoted), len(d.pending)); got != fmt.Sprint(promoted, pending) {
			t.Errorf("promoted and pending: %s, want %d %d", got, promoted, pending)
		}
	}
	var kept []*Conn
	for range maxPromoted {
		c := enter()
		c.Promote("user")
		c.Promote("user")
		kept = append(kept, c)
	}
	want(maxPromoted, 0)
	one := enter()
	one.Promote("user") // there is no place
	want(maxPromoted, 1)
	if one.Promoted() {
		t.Error("more are promoted than may be")
	}
	kept[0].Close()
	kept[0].Close()
	want(maxPromoted-1, 1)
	kept[0].Promote("user")
	want(maxPromoted-1, 1)
	one.Promote("user")
	want(maxPromoted, 0)
	first := enter()
	for range maxPending {
		enter()
	}
	want(maxPromoted, maxPending)
	if !first.Conn.(*addressed).closed {
		t.Error("the oldest is not the one to go")
	}
	first.Promote("user")
	first.Close()
	want(maxPromoted, maxPending)
	for _, c := range kept {
		if c != kept[0] && c.Conn.(*addressed).closed {
			t.Error("a promoted connection was displaced")
		}
	}
}

// TestBurst: one host opens many connections at once, like an API server. None of them is
// displaced, and other hosts can still connect.
func TestBurst(t *testing.T) {
	d := limited(nil)
	var in []*Conn
	var all []*addressed
	for range maxPending + maxWaiting {
		raw := &addressed{host: 1}
		all = append(all, raw)
		if c := d.admit(raw); c != nil {
			in = append(in, c)
		}
	}
	if len(in) != maxPending || len(d.waiting) != maxWaiting {
		t.Fatalf("%d are in, %d wait", len(in), len(d.waiting))
	}
	if d.next() != nil {
		t.Fatal("there is no room")
	}
	for i := 0; i < len(in); i++ { // each shows who it is, and makes room
		in[i].Promote("user")
		for c := d.next(); c != nil; c = d.next() {
			in = append(in, c)
		}
	}
	if len(in) != maxPending+maxWaiting || len(d.promoted) != len(in) {
		t.Errorf("%d came in, %d are promoted", len(in), len(d.promoted))
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

// TestCrowd: one host has all pending and waiting connections. Its further connections
// displace its own, and a connection of another host displaces one of them.
func TestCrowd(t *testing.T) {
	d := limited(nil)
	var crowd []*addressed
	for range maxPending + maxWaiting {
		raw := &addressed{host: 1}
		crowd = append(crowd, raw)
		d.admit(raw)
	}
	if c := d.admit(&addressed{host: 2}); c == nil || !crowd[0].closed {
		t.Errorf("another host: %v, the oldest closed: %v", c, crowd[0].closed)
	}
	if c := d.admit(&addressed{host: 1}); c == nil || !crowd[1].closed {
		t.Errorf("one more of the crowd: %v, its oldest closed: %v", c, crowd[1].closed)
	}
	if len(d.pending) != maxPending || len(d.waiting) != maxWaiting {
		t.Errorf("%d pending, %d wait", len(d.pending), len(d.waiting))
	}
	waits := d.waiting[0].Conn.(*addressed)
	d.Listener = &callers{}
	if err := d.Close(); err != nil || !waits.closed {
		t.Errorf("close: %v, who waited is closed: %v", err, waits.closed)
	}
}

// TestClosed: a connection that arrives during Close is closed and does not wait.
func TestClosed(t *testing.T) {
	d := limited(&callers{})
	for range maxPending {
		d.admit(&addressed{host: 1})
	}
	d.Close()
	late := &addressed{host: 1}
	if c := d.admit(late); c != nil || !late.closed || len(d.waiting) != 0 {
		t.Errorf("in: %v, closed: %v, waiting: %d", c != nil, late.closed, len(d.waiting))
	}
}

// TestUserWithManyPlaces: a user with many promoted connections loses idle ones to users
// with fewer, and none that is in use.
func TestUserWithManyPlaces(t *testing.T) {
	d := limited(&callers{})
	defer d.Close()
	enter := func() *Conn {
		c, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*Conn)
	}
	closed := func(c *Conn) bool { return c.Conn.(*addressed).closed }
	var greedy []*Conn
	for i := range maxPromoted {
		c := enter()
		c.Promote("greedy")
		if i < 2 {
			c.Begin()
		}
		greedy = append(greedy, c)
	}
	if c := enter(); !slices.Contains(d.pending, c) {
		t.Fatal("a new connection is not pending")
	} else if c.Promote("greedy"); c.Promoted() {
		t.Error("a user with all places displaces its own")
	}
	var others []*Conn
	for len(others) < maxPromoted/2 {
		c := enter()
		c.Promote("other")
		if !c.Promoted() {
			t.Fatalf("the other user has %d places and gets no more", len(others))
		}
		others = append(others, c)
	}
	if closed(greedy[0]) || closed(greedy[1]) || !closed(greedy[2]) {
		t.Error("the oldest idle one is not the one to go")
	}
	if c := enter(); c.Promoted() {
		t.Error("promoted unasked")
	} else if c.Promote("other"); c.Promoted() {
		t.Error("a user takes more places than the one that gives them")
	}
	if len(d.promoted) != maxPromoted || slices.ContainsFunc(others, closed) {
		t.Errorf("%d are promoted", len(d.promoted))
	}
	for _, c := range d.promoted {
		c.Begin()
	}
	third := enter()
	if third.Promote("third"); third.Promoted() {
		t.Error("a connection in use was displaced")
	}
	others[0].End()
	if third.Promote("third"); !third.Promoted() || !closed(others[0]) {
		t.Error("an idle place was not given up")
	}
}

// TestGrace: a connection is not displaced during its grace period, regardless of the
// number of new connections, which are not accepted until then.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 20 * time.Millisecond
		d := New(&callers{}, Config{Promoted: 1, Pending: 2, Grace: grace})
		enter := func() *Conn {
			c, err := d.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return c.(*Conn)
		}
		began := time.Now()
		first, second := enter(), enter()
		time.AfterFunc(grace/2, func() { second.Promote("user") })
		third := enter() // into the place that second leaves
		if took := time.Since(began); took != grace/2 || first.Conn.(*addressed).closed {
			t.Errorf("after %v, the first is closed: %v", took, first.Conn.(*addressed).closed)
		}
		enter()
		if took := time.Since(began); took != grace || !first.Conn.(*addressed).closed || third.Conn.(*addressed).closed {
			t.Errorf("after %v, the first is closed: %v, the third: %v", took, first.Conn.(*addressed).closed, third.Conn.(*addressed).closed)
		}
		time.AfterFunc(grace/4, func() { d.Close() })
		if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("of a closed listener: %v", err)
		}
	})
}
