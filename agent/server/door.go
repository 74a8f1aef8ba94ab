package server

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// How many connections there may be at a time. A connection costs up to
// 50 kB; a node is called by few, each of whom needs one or two. An API
// server that proxies many streams needs one for each.
const (
	maxKnown     = 48
	maxStrangers = 16
	// strangersRequests is how many requests at a time a connection may have
	// on which nobody was let through yet: they wait for reviews.
	strangersRequests = 8
)

// door lets connections in. Those on which somebody has shown a credential
// that holds stay; of the others the last few.
type door struct {
	net.Listener

	mu        sync.Mutex
	known     int
	strangers []*conn // the oldest first
}

// conn is a connection, before TLS.
type conn struct {
	net.Conn
	door *door
	from netip.Prefix
	// trusted is set once, when the connection is promoted.
	trusted  atomic.Bool
	gone     bool // under door.mu
	requests atomic.Int32
}

// Accept waits for a connection. Where there are too many strangers, it
// closes one.
func (d *door) Accept() (net.Conn, error) {
	raw, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, door: d, from: network(raw.RemoteAddr())}
	d.mu.Lock()
	var out *conn
	if len(d.strangers) >= maxStrangers {
		out = displaced(d.strangers)
	}
	d.strangers = append(d.strangers, c)
	d.mu.Unlock()
	if out != nil {
		_ = out.Close() // whose handler finds out by itself
	}
	return c, nil
}

// promote keeps the connection from being displaced, where there is a place
// among those that are.
func (c *conn) promote() {
	if c.trusted.Load() {
		return
	}
	d := c.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.gone || c.trusted.Load() || d.known >= maxKnown {
		return
	}
	d.leave(c)
	d.known++
	c.trusted.Store(true)
}

// Close gives the place up.
func (c *conn) Close() error {
	err := c.Conn.Close()
	d := c.door
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.gone:
	case c.trusted.Load():
		d.known--
	default:
		d.leave(c)
	}
	c.gone = true
	return err
}

// leave takes c from the strangers. The lock is held.
func (d *door) leave(c *conn) {
	if i := slices.Index(d.strangers, c); i >= 0 {
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
}

// displaced is the connection that makes room for another: the oldest of the
// network that has the most, so that who opens many displaces their own.
func displaced(strangers []*conn) *conn {
	var out *conn
	most := 0
	for i, c := range strangers {
		n := 0
		for _, other := range strangers[i:] {
			if other.from == c.from {
				n++
			}
		}
		if n > most {
			out, most = c, n
		}
	}
	return out
}

// network is whose a connection is: an address of IPv4, or the 64 bits that
// are one host's in IPv6.
func network(address net.Addr) netip.Prefix {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	from := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if from.Is6() {
		bits = 64
	}
	out, err := from.Prefix(bits)
	if err != nil { // no address, which is one too
		return netip.Prefix{}
	}
	return out
}
