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
// server that proxies many streams needs one for each, and opens them at once.
const (
	maxKnown     = 80
	maxStrangers = 16
	// maxWaiting is how many more may wait to be strangers. They cost what the
	// kernel has for them.
	maxWaiting = 64
	// strangersRequests is how many requests at a time a connection may have
	// on which nobody was let through yet: they wait for reviews.
	strangersRequests = 8
)

// door lets connections in. Those on which somebody has shown a credential
// that holds stay; of the others the last few, except that a network which has
// the most of them waits for its own: its earlier ones are still in their
// handshakes, where displacing them would have all of them begin again.
type door struct {
	net.Listener
	arrived chan arrival  // made by the first Accept
	room    chan struct{} // one slot: somebody waits, and has room now
	closed  chan struct{}
	once    sync.Once // closes closed

	mu        sync.Mutex
	shut      bool // nobody comes in any more
	known     int
	strangers []*conn // the oldest first
	waiting   []*conn // the oldest first
}

// arrival is what the listener has answered.
type arrival struct {
	conn net.Conn
	err  error
}

func newDoor(l net.Listener) *door {
	return &door{Listener: l, room: make(chan struct{}, 1), closed: make(chan struct{})}
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
// closes one, or has the new one wait. It is called by one goroutine.
func (d *door) Accept() (net.Conn, error) {
	if d.arrived == nil {
		d.arrived = make(chan arrival)
		go d.listen()
	}
	for {
		if c := d.next(); c != nil {
			return c, nil
		}
		select {
		case a := <-d.arrived:
			if a.err != nil {
				return nil, a.err
			}
			if c := d.enter(a.conn); c != nil {
				return c, nil
			}
		case <-d.room:
		case <-d.closed:
			return nil, net.ErrClosed
		}
	}
}

// listen hands over what the listener accepts, until it is closed.
func (d *door) listen() {
	for {
		c, err := d.Listener.Accept()
		select {
		case d.arrived <- arrival{c, err}:
		case <-d.closed:
			if c != nil {
				_ = c.Close() // nobody will read it
			}
			return
		}
	}
}

// Close ends the listener, and those who wait.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	err := d.Listener.Close()
	d.mu.Lock()
	waiting := d.waiting
	d.shut, d.waiting = true, nil
	d.mu.Unlock()
	for _, c := range waiting {
		_ = c.Conn.Close()
	}
	return err
}

// enter makes a stranger of a connection, or nil if it has to wait, or comes
// too late.
func (d *door) enter(raw net.Conn) *conn {
	c := &conn{Conn: raw, door: d, from: network(raw.RemoteAddr())}
	d.mu.Lock()
	if d.shut {
		d.mu.Unlock()
		_ = raw.Close() // nobody will read it
		return nil
	}
	var out *conn
	if len(d.strangers) >= maxStrangers {
		out = displaced(d.strangers)
		if out.from == c.from && len(d.waiting) < maxWaiting {
			d.waiting = append(d.waiting, c)
			d.mu.Unlock()
			return nil
		}
	}
	d.strangers = append(d.strangers, c)
	d.mu.Unlock()
	if out != nil {
		_ = out.Close() // whose handler finds out by itself
	}
	return c
}

// next is who has waited longest, if there is room.
func (d *door) next() *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 || len(d.strangers) >= maxStrangers {
		return nil
	}
	c := d.waiting[0]
	d.waiting = slices.Delete(d.waiting, 0, 1)
	d.strangers = append(d.strangers, c)
	return c
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
	if len(d.waiting) > 0 {
		select {
		case d.room <- struct{}{}:
		default: // Accept is to look already
		}
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
