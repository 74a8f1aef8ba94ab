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

// Traffic holds the numbers of bytes sent to and received from API servers for one
// verb and resource.
type Traffic struct {
	// Verb is get, list, watch, create, patch or delete. Resource is a name as in
	// URLs, or a path that belongs to no resource. Both are Connection for bytes
	// outside of bodies.
	Verb, Resource string
	Sent, Received uint64
}

// Connection is the verb and the resource of bytes outside of request and response
// bodies: TLS, HTTP headers and frames, pings, the handshake with a proxy,
// and the unread rest of responses.
const Connection = "connection"

// Meter counts the bytes on the wire, measured at the sockets: it includes TLS and
// HTTP, but not the headers of TCP and IP. One Meter may serve several Clients,
// consecutively or concurrently, so that its counts outlive each. The zero value is
// ready to use. Its methods may be called concurrently.
type Meter struct {
	wire  counter
	today today
	// Requests other than watches. Their bodies are counted at a different time
	// than the bytes on the wire.
	begun, ended atomic.Uint64

	mu   sync.Mutex
	by   map[purpose]*counter
	rest Traffic // the last reported Connection counts
	// requests is nil before the first request.
	requests *requests
}

// purposeKey is the context key of a request's purpose.
type purposeKey struct{}

// purpose is the verb and the resource of a request.
type purpose struct{ verb, resource string }

type counter struct{ sent, received atomic.Uint64 }

// of returns the counter for the bodies of one purpose, and the metrics of requests.
func (m *Meter) of(p purpose) (*counter, *requests) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests = &requests{took: metrics.NewTimingVec(requestBounds)}
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

// Traffic returns the bytes on the wire until now, sorted by verb and resource. No
// number ever decreases. The sum equals the bytes on the connections, except for
// requests in flight: Connection is updated only while there are none.
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
	// While a request is in flight, its body may be counted but not sent yet, or
	// received but not read yet. The difference would be wrong.
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

// less returns a-b, at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }

// countedConn counts the bytes of a connection, fails if none are received for
// transport.silent, and can be closed by the transport.
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

// Total returns the sum of all purposes in bytes.
func (m *Meter) Total() (sent, received uint64) {
	for _, t := range m.Traffic() {
		sent += t.Sent
		received += t.Received
	}
	return sent, received
}
