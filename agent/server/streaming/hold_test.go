package streaming

import (
	"io"
	"net"
	"testing"
	"time"
)

// legs is a session over TCP. The socket of the runtime can buffer much bytes at once,
// the client's connection only little more than held bytes.
type legs struct {
	*session
	client, runtime *net.TCPConn
	done            chan struct{}
}

const much = 2 << 20

func overTCP(t *testing.T, held int, linger time.Duration) *legs {
	t.Helper()
	c, client := tcpPair(t)
	r, runtime := tcpPair(t)
	l := &legs{session: newSession(c, r, nil, nil, 0), client: client.(*net.TCPConn), runtime: runtime.(*net.TCPConn), done: make(chan struct{})}
	l.drainTimeout = linger
	for _, err := range []error{
		l.runtime.SetWriteBuffer(2 * much), r.(*net.TCPConn).SetReadBuffer(64 << 10),
		c.(*net.TCPConn).SetWriteBuffer(held), l.client.SetReadBuffer(64 << 10),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	go func() { defer close(l.done); l.run() }()
	t.Cleanup(func() {
		l.client.Close()
		l.runtime.Close()
		l.end()
		<-l.done
	})
	return l
}

func (l *legs) say(t *testing.T, to *net.TCPConn, b []byte) {
	t.Helper()
	if _, err := to.Write(b); err != nil {
		t.Fatal(err)
	}
}

// rest reads the data that the client can still receive and returns its size.
func (l *legs) rest(t *testing.T) int64 {
	t.Helper()
	if err := l.client.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, l.client)
	if err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
	return n
}

// TestPingsLoseNothing: a ping that arrives after the runtime has closed its connection
// does not drop unread output.
func TestPingsLoseNothing(t *testing.T) {
	l := overTCP(t, 64<<10, drainTimeout)
	l.say(t, l.runtime, make([]byte, much))
	if err := l.runtime.Close(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		l.say(t, l.client, []byte(spdyPingFrame))
	}
	time.Sleep(20 * time.Millisecond)
	if n := l.rest(t); n != much {
		t.Errorf("the client got %d of %d bytes", n, much)
	}
}

// TestEndedClientGetsAll: neither does a client that sends a ping and then closes its
// write side while output is unread.
func TestEndedClientGetsAll(t *testing.T) {
	l := overTCP(t, 64<<10, drainTimeout)
	l.say(t, l.runtime, make([]byte, much))
	if err := l.runtime.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "something has come", func() bool { return unreadBytes(l.session.runtime) > 0 })
	l.say(t, l.client, []byte(spdyPingFrame))
	until(t, "the ping is held", l.pingBuffer.held.Load)
	if err := l.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	until(t, "the end is passed on", func() bool { return !l.pingBuffer.held.Load() })
	time.Sleep(20 * time.Millisecond)
	if n := l.rest(t); n != much {
		t.Errorf("the client got %d of %d bytes", n, much)
	}
}

// TestPingsWait: pings are held while output of the runtime is unread, and no longer;
// other data flushes them.
func TestPingsWait(t *testing.T) {
	for _, tc := range []struct {
		name, more string
	}{
		{"until all is read", ""},
		{"until there is more to say", spdyDataFrame},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := overTCP(t, 64<<10, drainTimeout)
			l.say(t, l.runtime, make([]byte, much))
			until(t, "something has come", func() bool { return unreadBytes(l.session.runtime) > 0 })
			l.say(t, l.client, []byte(spdyPingFrame))
			until(t, "the ping is held", l.pingBuffer.held.Load)
			want := spdyPingFrame + tc.more
			if tc.more != "" {
				l.say(t, l.client, []byte(tc.more))
			} else {
				go io.CopyN(io.Discard, l.client, much)
			}
			got := make([]byte, len(want))
			if err := l.runtime.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(l.runtime, got); err != nil || string(got) != want {
				t.Errorf("the runtime gets %q, %v, want %q", got, err, want)
			}
		})
	}
}

// TestPingsAreHeldInPart: the size of the held pings is limited.
func TestPingsAreHeldInPart(t *testing.T) {
	l := overTCP(t, 64<<10, drainTimeout)
	l.say(t, l.runtime, make([]byte, much))
	until(t, "something has come", func() bool { return unreadBytes(l.session.runtime) > 0 })
	const count = maxHeld/len(spdyPingFrame) + 1
	go func() {
		for range count {
			_, _ = l.client.Write([]byte(spdyPingFrame))
		}
	}()
	if err := l.runtime.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(l.runtime, make([]byte, count*len(spdyPingFrame))); err != nil {
		t.Error(err)
	}
}

// TestSlowClientGetsAll: a client on a slow link receives all output of a runtime that
// has ended, regardless of the duration and of the data that it sends meanwhile.
func TestSlowClientGetsAll(t *testing.T) {
	const linger = 100 * time.Millisecond
	l := overTCP(t, 2*much, linger)
	l.say(t, l.runtime, make([]byte, much))
	if err := l.runtime.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the session lingers", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.drainTimer != nil
	})
	got := int64(0)
	for range 8 {
		time.Sleep(linger / 2)
		n, err := io.CopyN(io.Discard, l.client, much/10)
		if got += n; err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		l.say(t, l.client, []byte(spdyPingFrame))
	}
	if got += l.rest(t); got != much {
		t.Errorf("the client got %d of %d bytes", got, much)
	}
}

// TestClientThatReadsNoMore: a session ends if the client stops reading.
func TestClientThatReadsNoMore(t *testing.T) {
	l := overTCP(t, 2*much, 50*time.Millisecond)
	l.say(t, l.runtime, make([]byte, much))
	if err := l.runtime.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.done:
	case <-time.After(20 * time.Second):
		t.Error("the session goes on")
	}
}
