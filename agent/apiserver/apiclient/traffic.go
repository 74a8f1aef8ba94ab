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

	"github.com/tinylet/tinylet/agent/metrics"
)

// Traffic is how many bytes went to API servers and came from them for one
// purpose.
type Traffic struct {
	// Verb is get, list, watch, create, patch or delete, Resource a name as
	// in URLs, or a path that belongs to no resource. Both are Connection for
	// what no body took.
	Verb, Resource string
	Sent, Received uint64
}

// Connection is the verb and the resource of bytes that are of no request's
// body: TLS, the headers and frames of HTTP, pings, a proxy's greeting, and
// what came of answers that nobody read to their end.
const Connection = "connection"

// Meter counts what goes over the wire, as the sockets see it: TLS and HTTP
// included, the headers of TCP and IP not. One Meter may count for several
// Clients, one after the other or at once, so that its numbers outlive each.
// The zero value is ready, and all methods may be called at once.
type Meter struct {
	wire  counter
	today today
	// Requests other than watches, whose bodies are counted on the wire at
	// another time than in themselves.
	begun, ended atomic.Uint64

	mu   sync.Mutex
	by   map[purpose]*counter
	rest Traffic // as it was told last
	// requests is nil before the first.
	requests *requests
}

// purposeKey is the context's key of a request's purpose.
type purposeKey struct{}

// purpose is what a request is made for.
type purpose struct{ verb, resource string }

type counter struct{ sent, received atomic.Uint64 }

// of is the counter of the bodies of one purpose, and where what becomes of
// the request is counted.
func (m *Meter) of(p purpose) (*counter, *requests) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests = &requests{took: metrics.NewTimings(requestBounds)}
	}
	c := m.by[p]
	if c == nil {
		if m.by == nil {
			m.by = make(map[purpose]*counter)
		}
		c = new(counter)
		m.by[p] = c
	}
	return c, m.requests
}

// Traffic is what went over the wire until now, by verb and resource. No
// number is ever smaller than it was. The sum is what the connections carried,
// but for what is under way: Connection does not grow while a request is.
func (m *Meter) Traffic() []Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, begun := m.ended.Load(), m.begun.Load()
	out := make([]Traffic, 0, len(m.by)+1)
	var bodies Traffic
	for p, n := range m.by {
		row := Traffic{Verb: p.verb, Resource: p.resource, Sent: n.sent.Load(), Received: n.received.Load()}
		bodies.Sent += row.Sent
		bodies.Received += row.Received
		out = append(out, row)
	}
	sent, received := m.wire.sent.Load(), m.wire.received.Load()
	// A body that was counted and not sent yet, or received and not read yet,
	// would make the rest smaller or larger than it is.
	if ended == begun && begun == m.begun.Load() {
		m.rest.Sent = max(m.rest.Sent, less(sent, bodies.Sent))
		m.rest.Received = max(m.rest.Received, less(received, bodies.Received))
	}
	out = append(out, Traffic{Verb: Connection, Resource: Connection, Sent: m.rest.Sent, Received: m.rest.Received})
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
	c.t.meter.notice(time.Now())
	c.t.meter.wire.received.Add(uint64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrSilent
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.t.meter.notice(time.Now())
	c.t.meter.wire.sent.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}
