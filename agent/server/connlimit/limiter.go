// Package connlimit limits the connections of a listener without locking out
// authorized clients. A connection is pending until the server promotes it, after its
// first authorized request. The number of pending connections is small: at the limit, a
// new one displaces another, of the source with the most of them. Promoted connections
// are not displaced by pending ones.
package connlimit

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Listener.
type Config struct {
	// Promoted limits the promoted connections.
	Promoted int
	// Pending limits the other served connections.
	Pending int
	// Waiting limits the connections that wait to become pending. They wait
	// because displacing other connections of their source would make all of its
	// connections start again. A waiting connection is not read: its data stays in the
	// kernel.
	Waiting int
	// Grace is how long a pending connection is not displaced, so that a request
	// that has arrived with it is read. Until then, a new connection that would
	// displace it is not admitted, and neither are those after it.
	Grace time.Duration
}

// Listener limits the connections of another listener. One goroutine must call
// Accept; each connection is a *Conn.
type Listener struct {
	net.Listener
	config  Config
	arrived chan arrival  // created by the first Accept
	room    chan struct{} // capacity 1: a pending connection has ended
	closed  chan struct{}
	once    sync.Once // closes closed

	mu       sync.Mutex
	shut     bool    // no new connections
	promoted []*Conn // oldest first, as are the next two
	pending  []*Conn
	waiting  []*Conn
}

// arrival is a result of the underlying listener's Accept.
type arrival struct {
	conn net.Conn
	err  error
}

// New returns a Listener that limits the connections of l.
func New(l net.Listener, c Config) *Listener {
	return &Listener{Listener: l, config: c, room: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Conn is an accepted connection, below TLS.
type Conn struct {
	net.Conn
	listener *Listener
	source   netip.Prefix
	began    time.Time   // when it became pending
	promoted atomic.Bool // set once
	requests atomic.Int32
	user     string // under listener.mu, as is removed
	removed  bool   // removed from promoted or pending
}

// Accept waits for a connection. If too many are pending, it closes one of them or
// makes the new one wait.
func (l *Listener) Accept() (net.Conn, error) {
	if l.arrived == nil {
		l.arrived = make(chan arrival)
		go l.listen()
	}
	for {
		if c := l.next(); c != nil {
			return c, nil
		}
		select {
		case a := <-l.arrived:
			if a.err != nil {
				return nil, a.err
			}
			l.waitGrace()
			if c := l.admit(a.conn); c != nil {
				return c, nil
			}
		case <-l.room:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// listen passes the results of the underlying listener's Accept to Accept, until l is
// closed.
func (l *Listener) listen() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.arrived <- arrival{c, err}:
		case <-l.closed:
			if c != nil {
				_ = c.Close() // nothing will read it
			}
			return
		}
	}
}

// Close closes the listener and the waiting connections.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.mu.Lock()
	waiting := l.waiting
	l.shut, l.waiting = true, nil
	l.mu.Unlock()
	for _, c := range waiting {
		_ = c.Conn.Close()
	}
	return err
}

// waitGrace waits until there is room for a pending connection, or the grace period of
// the connection to displace is over.
func (l *Listener) waitGrace() {
	for {
		l.mu.Lock()
		left := time.Duration(0)
		if len(l.pending) >= l.config.Pending {
			left = l.config.Grace - time.Since(pendingToDisplace(l.pending).began)
		}
		l.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-l.room:
		case <-l.closed:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// admit makes raw a pending connection. It returns nil if the connection has to wait
// or the listener is closed.
func (l *Listener) admit(raw net.Conn) *Conn {
	c := &Conn{Conn: raw, listener: l, source: source(raw.RemoteAddr()), began: time.Now()}
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		_ = raw.Close() // nothing will read it
		return nil
	}
	var out *Conn
	if len(l.pending) >= l.config.Pending {
		if out = pendingToDisplace(l.pending); out.source == c.source && len(l.waiting) < l.config.Waiting {
			l.waiting = append(l.waiting, c)
			l.mu.Unlock()
			return nil
		}
	}
	l.pending = append(l.pending, c)
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // the HTTP server notices the error
	}
	return c
}

// next makes the connection that has waited longest pending and returns it. It returns
// nil if there is none or no room.
func (l *Listener) next() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 || len(l.pending) >= l.config.Pending {
		return nil
	}
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	c.began = time.Now()
	l.pending = append(l.pending, c)
	return c
}

// Promote protects the connection from being displaced by pending ones. If the limit
// of promoted connections is reached, it closes an idle one of a user that has more of
// them than this user; without one, the connection stays pending.
func (c *Conn) Promote(user string) {
	if c.promoted.Load() {
		return
	}
	l := c.listener
	l.mu.Lock()
	if c.removed || c.promoted.Load() {
		l.mu.Unlock()
		return
	}
	var out *Conn
	if len(l.promoted) >= l.config.Promoted {
		if out = idleToDisplace(l.promoted, user); out == nil {
			l.mu.Unlock()
			return
		}
		l.promoted = remove(l.promoted, out)
		out.removed = true
	}
	l.removePending(c)
	l.promoted = append(l.promoted, c)
	c.user = user
	c.promoted.Store(true)
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // its client reconnects
	}
}

// Promoted reports whether the connection was promoted.
func (c *Conn) Promoted() bool { return c.promoted.Load() }

// Begin records the start of a request, and returns the number of requests in flight.
func (c *Conn) Begin() int { return int(c.requests.Add(1)) }

// End records the end of a request. It must not be called for a request that has
// hijacked the connection.
func (c *Conn) End() { c.requests.Add(-1) }

// Close closes the connection and frees its slot.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.removed:
	case c.promoted.Load():
		l.promoted = remove(l.promoted, c)
	default:
		l.removePending(c)
	}
	c.removed = true
	return err
}

// removePending removes c from the pending connections. The lock must be held.
func (l *Listener) removePending(c *Conn) {
	l.pending = remove(l.pending, c)
	select {
	case l.room <- struct{}{}:
	default: // Accept is already notified
	}
}

func remove(all []*Conn, c *Conn) []*Conn {
	return slices.DeleteFunc(all, func(other *Conn) bool { return other == c })
}
