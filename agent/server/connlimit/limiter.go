// Package connlimit bounds the connections of a listener in a way that keeps
// nobody out who has something to ask. A connection is pending until its first
// request has been found good, and promoted then. Pending connections have few
// places and displace each other, those of the source with the most first;
// promoted ones stay.
package connlimit

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config bounds a listener.
type Config struct {
	// Promoted bounds the promoted connections.
	Promoted int
	// Pending bounds the others that are served.
	Pending int
	// Waiting bounds those that wait to become pending, since displacing the
	// others of their source would have all of them begin again. They cost
	// what the kernel has for them.
	Waiting int
	// Grace is how long a pending connection is not displaced, so that a
	// request that has arrived with it is read. Others are not accepted until
	// then.
	Grace time.Duration
}

// Listener accepts the connections of another within bounds. One goroutine
// calls Accept; each connection is a *Conn.
type Listener struct {
	net.Listener
	config  Config
	arrived chan arrival  // made by the first Accept
	room    chan struct{} // one slot: there is room
	closed  chan struct{}
	once    sync.Once // closes closed

	mu       sync.Mutex
	shut     bool    // nobody comes in any more
	promoted []*Conn // the oldest first, as are the next two
	pending  []*Conn
	waiting  []*Conn
}

// arrival is what the listener below has answered.
type arrival struct {
	conn net.Conn
	err  error
}

// New bounds what l accepts.
func New(l net.Listener, c Config) *Listener {
	return &Listener{Listener: l, config: c, room: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Conn is a connection as it was accepted, below TLS.
type Conn struct {
	net.Conn
	listener *Listener
	from     netip.Prefix
	began    time.Time   // when it became pending
	isIn     atomic.Bool // promoted; set once
	requests atomic.Int32
	user     string // under listener.mu, as is gone
	gone     bool
}

// Accept waits for a connection. Where too many are pending, it closes one, or
// has the new one wait.
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
			l.forbear()
			if c := l.enter(a.conn); c != nil {
				return c, nil
			}
		case <-l.room:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// listen hands over what the listener below accepts, until it is closed.
func (l *Listener) listen() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.arrived <- arrival{c, err}:
		case <-l.closed:
			if c != nil {
				_ = c.Close() // nobody will read it
			}
			return
		}
	}
}

// Close ends the listener and the connections that wait.
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

// forbear waits until there is room, or the grace of the connection that would
// make room is over.
func (l *Listener) forbear() {
	for {
		l.mu.Lock()
		left := time.Duration(0)
		if len(l.pending) >= l.config.Pending {
			left = l.config.Grace - time.Since(ofLargestSource(l.pending).began)
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

// enter makes a pending connection of raw, or nil if it has to wait or comes
// too late.
func (l *Listener) enter(raw net.Conn) *Conn {
	c := &Conn{Conn: raw, listener: l, from: source(raw.RemoteAddr()), began: time.Now()}
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		_ = raw.Close() // nobody will read it
		return nil
	}
	var out *Conn
	if len(l.pending) >= l.config.Pending {
		if out = ofLargestSource(l.pending); out.from == c.from && len(l.waiting) < l.config.Waiting {
			l.waiting = append(l.waiting, c)
			l.mu.Unlock()
			return nil
		}
	}
	l.pending = append(l.pending, c)
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // its handler sees it
	}
	return c
}

// next is the connection that has waited longest, if there is room.
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

// Promote keeps the connection from being displaced by those that are pending.
// Where all places are taken, a user with more of them than this one gives up
// a place that is idle; where there is none, the connection stays pending.
func (c *Conn) Promote(user string) {
	if c.isIn.Load() {
		return
	}
	l := c.listener
	l.mu.Lock()
	if c.gone || c.isIn.Load() {
		l.mu.Unlock()
		return
	}
	var out *Conn
	if len(l.promoted) >= l.config.Promoted {
		if out = yields(l.promoted, user); out == nil {
			l.mu.Unlock()
			return
		}
		l.promoted = remove(l.promoted, out)
		out.gone = true
	}
	l.leave(c)
	l.promoted = append(l.promoted, c)
	c.user = user
	c.isIn.Store(true)
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // its client connects again
	}
}

// Promoted reports whether the connection was promoted.
func (c *Conn) Promoted() bool { return c.isIn.Load() }

// Begin counts a request on the connection, and returns how many there are
// now. End ends one; what has taken the connection over never does.
func (c *Conn) Begin() int { return int(c.requests.Add(1)) }

// End is the counterpart of Begin.
func (c *Conn) End() { c.requests.Add(-1) }

// Close gives the place up.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.gone:
	case c.isIn.Load():
		l.promoted = remove(l.promoted, c)
	default:
		l.leave(c)
	}
	c.gone = true
	return err
}

// leave takes c from the pending connections. The lock is held.
func (l *Listener) leave(c *Conn) {
	l.pending = remove(l.pending, c)
	select {
	case l.room <- struct{}{}:
	default: // Accept is to look already
	}
}

func remove(all []*Conn, c *Conn) []*Conn {
	if i := slices.Index(all, c); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}
