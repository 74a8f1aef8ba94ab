package apiclient

import (
	"cmp"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Traffic is how many bytes went to the server and came from it for one
// purpose since the client was made.
type Traffic struct {
	// Verb is get, list, watch, create, patch or delete. With an empty verb
	// and resource it is what no body took: TLS, the frames and headers of
	// HTTP, and pings.
	Verb, Resource string
	Sent, Received uint64
}

// purposeKey is the context's key of a request's purpose.
type purposeKey struct{}

// purpose is what a request is made for.
type purpose struct{ verb, resource string }

// counter counts bodies. It is allocated by itself, which aligns it on 32-bit
// machines; atomic.Uint64 would do so anyway.
type counter struct{ sent, received atomic.Uint64 }

// traffic counts bodies by purpose, and all that connections carry.
type traffic struct {
	wire counter

	mu sync.Mutex
	by map[purpose]*counter
}

func (t *traffic) of(p purpose) *counter {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.by[p]
	if c == nil {
		if t.by == nil {
			t.by = make(map[purpose]*counter)
		}
		c = new(counter)
		t.by[p] = c
	}
	return c
}

// Traffic is what went over the wire until now, by verb and resource. The sum
// is what the connections carried.
func (c *Client) Traffic() []Traffic {
	t := &c.transport.count
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Traffic, 0, len(t.by)+1)
	var bodies Traffic
	for p, n := range t.by {
		row := Traffic{Verb: p.verb, Resource: p.resource, Sent: n.sent.Load(), Received: n.received.Load()}
		bodies.Sent += row.Sent
		bodies.Received += row.Received
		out = append(out, row)
	}
	// A body is counted before TLS has sent it, and may be compressed.
	rest := Traffic{Sent: less(t.wire.sent.Load(), bodies.Sent), Received: less(t.wire.received.Load(), bodies.Received)}
	out = append(out, rest)
	slices.SortFunc(out, func(a, b Traffic) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

func less(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}

// countedConn counts a connection's bytes, notices when none come, and can be
// closed from outside.
type countedConn struct {
	net.Conn
	t *transport
}

func (t *transport) counted(conn net.Conn) net.Conn {
	c := &countedConn{Conn: conn, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = struct{}{}
	return c
}

func (c *countedConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(c.t.silent)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.t.count.wire.received.Add(uint64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrSilent
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.t.count.wire.sent.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}
