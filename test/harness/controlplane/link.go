package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Mode is what a Link does with its connections.
type Mode int

const (
	// Pass carries bytes as they come.
	Pass Mode = iota
	// Slow carries SlowRate in each direction, shared by all connections.
	Slow
	// Drop resets every tenth new connection at once, and passes the others.
	Drop
	// Garbage answers a new connection with what is neither TLS nor HTTP.
	Garbage
	// Hang takes connections and bytes, and carries nothing. What it took goes
	// on when the mode changes.
	Hang
)

func (m Mode) String() string {
	names := []string{"pass", "slow", "drop", "garbage", "hang"}
	if m < 0 || int(m) >= len(names) {
		return fmt.Sprintf("mode %d", int(m))
	}
	return names[m]
}

const (
	// SlowRate is what a slow link carries, in bytes per second.
	SlowRate = 1000
	// backlog is how many bytes a link holds in one direction of a
	// connection, but for Hang: a thin link that took more would be a fast one
	// with a long queue.
	backlog = 4 << 10
	// dropEach is how many connections there are to one that is dropped.
	dropEach = 10
)

// garbage is no record of TLS, and no answer of HTTP.
const garbage = "\x00\x01\x02 this is not the server that you are looking for \xff\xfe\r\n\r\n"

// Link carries TCP connections to a server, with the configured faults. Its
// methods may be called concurrently.
type Link struct {
	listener net.Listener
	dial     func(ctx context.Context) (net.Conn, error)
	cancel   context.CancelFunc // ends what Close has to wait for
	wg       sync.WaitGroup
	up, down pace

	mu       sync.Mutex
	changed  *sync.Cond // of mode, and of any flow
	mode     Mode
	carried  map[*carried]struct{}
	accepted int
	dropped  int
	left     time.Time
}

// carried is one connection.
type carried struct {
	client, server net.Conn
	cut            bool // the link ended it
	closed         bool
}

// NewLink carries what comes to a listener to what dial connects to. Close
// must be called, and closes the listener.
func NewLink(listener net.Listener, dial func(ctx context.Context) (net.Conn, error)) *Link {
	l := &Link{listener: listener, dial: dial, carried: make(map[*carried]struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.changed = sync.NewCond(&l.mu)
	l.wg.Go(func() { l.serve(ctx) })
	return l
}

// Close ends the link and all its connections.
func (l *Link) Close() {
	l.cancel()
	_ = l.listener.Close() // it serves no more
	l.Cut()
	l.wg.Wait()
}

// Address is where the link listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// SetMode changes what the link does, with the connections that it has as well.
func (l *Link) SetMode(m Mode) {
	l.mu.Lock()
	l.mode = m
	l.mu.Unlock()
	l.changed.Broadcast()
}

// Cut ends all connections now.
func (l *Link) Cut() {
	l.mu.Lock()
	open := make([]*carried, 0, len(l.carried))
	for c := range l.carried {
		c.cut = true
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		l.end(c)
	}
}

// Counts are how many connections the link was asked for, and how many of them
// it has dropped.
func (l *Link) Counts() (accepted, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, l.dropped
}

// Left is when a client last ended a connection, which neither the server nor
// the link had ended; zero for never.
func (l *Link) Left() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

func (l *Link) serve(ctx context.Context) {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // Close was called
		}
		l.mu.Lock()
		l.accepted++
		mode := l.mode
		drop := mode == Drop && l.accepted%dropEach == 0
		if drop {
			l.dropped++
		}
		l.mu.Unlock()
		switch {
		case drop:
			reset(conn)
		case mode == Garbage:
			l.wg.Go(func() { babble(conn) })
		default:
			l.wg.Go(func() { l.carry(ctx, conn) })
		}
	}
}

// reset ends a connection without a farewell.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else it is closed in peace
	}
	_ = conn.Close()
}

// babble waits until somebody speaks, and answers nonsense.
func babble(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // end if the client sends nothing
	_, _ = conn.Read(make([]byte, 1))
	_, _ = conn.Write([]byte(garbage))
}

// carry carries one connection to its end.
func (l *Link) carry(ctx context.Context, client net.Conn) {
	server, err := l.dial(ctx)
	if err != nil {
		reset(client) // as a server that is down does
		return
	}
	for _, conn := range []net.Conn{client, server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(backlog) // best effort
		}
	}
	c := &carried{client: client, server: server}
	l.mu.Lock()
	l.carried[c] = struct{}{}
	l.mu.Unlock()
	if ctx.Err() != nil {
		l.end(c) // Close may have missed it
	}
	var wg sync.WaitGroup
	for _, f := range []*flow{{l: l, c: c, from: client, to: server, pace: &l.up}, {l: l, c: c, from: server, to: client, pace: &l.down}} {
		wg.Go(f.take)
		wg.Go(func() { f.give(ctx) })
	}
	wg.Wait()
	l.mu.Lock()
	delete(l.carried, c)
	l.mu.Unlock()
}

// end ends a connection and wakes who waits for it.
func (l *Link) end(c *carried) {
	l.mu.Lock()
	c.closed = true
	l.mu.Unlock()
	l.changed.Broadcast()
	reset(c.client)
	reset(c.server)
}

// flow is one direction of a connection.
type flow struct {
	l        *Link
	c        *carried
	from, to net.Conn
	pace     *pace

	// Under the link's lock.
	held []byte
	over bool // nothing more comes
}

// take reads what comes.
func (f *flow) take() {
	l := f.l
	buffer := make([]byte, backlog)
	for {
		n, err := f.from.Read(buffer)
		l.mu.Lock()
		f.held = append(f.held, buffer[:n]...)
		if err != nil {
			f.over = true
			if f.from == f.c.client && !f.c.cut && !f.c.closed {
				l.left = time.Now()
			}
		}
		l.changed.Broadcast()
		for err == nil && !f.c.closed && l.mode != Hang && len(f.held) >= backlog {
			l.changed.Wait()
		}
		// A server that ends may have said something before, which give hands
		// on; nobody is there for what it says to a client that ended.
		end := err != nil && !f.c.closed && (f.from == f.c.client || l.mode == Hang)
		over := err != nil || f.c.closed
		l.mu.Unlock()
		if end {
			l.end(f.c)
		}
		if over {
			return
		}
	}
}

// give hands on what was taken.
func (f *flow) give(ctx context.Context) {
	l := f.l
	for {
		l.mu.Lock()
		for !f.c.closed && (l.mode == Hang || len(f.held) == 0 && !f.over) {
			l.changed.Wait()
		}
		if f.c.closed {
			l.mu.Unlock()
			return
		}
		n := len(f.held)
		slow := l.mode == Slow
		if slow {
			n = min(n, SlowRate/10)
		}
		chunk := slices.Clone(f.held[:n])
		f.held = f.held[n:]
		l.changed.Broadcast()
		l.mu.Unlock()
		if n == 0 {
			l.end(f.c) // all that came is handed on
			return
		}
		if slow {
			f.pace.wait(ctx, n)
		}
		if _, err := f.to.Write(chunk); err != nil {
			l.end(f.c)
			return
		}
	}
}

// pace lets SlowRate through.
type pace struct {
	mu   sync.Mutex
	free time.Time // when all that was let through is gone
}

// wait blocks for as long as n bytes take after those before them.
func (p *pace) wait(ctx context.Context, n int) {
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(n) * time.Second / SlowRate)
	until := p.free
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
