package streaming

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// line is a connection in memory that supports CloseWrite.
type line struct {
	net.Conn // nil: what is not here is not called
	in       *io.PipeReader
	out      *io.PipeWriter
}

func (l *line) Read(b []byte) (int, error)  { return l.in.Read(b) }
func (l *line) Write(b []byte) (int, error) { return l.out.Write(b) }
func (l *line) CloseWrite() error           { return l.out.Close() }
func (l *line) Close() error {
	l.in.CloseWithError(io.ErrClosedPipe)
	return l.out.CloseWithError(io.ErrUnexpectedEOF)
}

func lines() (ours, theirs *line) {
	ar, aw := io.Pipe()
	br, bw := io.Pipe()
	return &line{in: ar, out: bw}, &line{in: br, out: aw}
}

// table is a session between two connections of a test.
type table struct {
	*session
	client, runtime *line
	done            chan struct{}
}

func seat(idle time.Duration, early, first string) *table { return seatOf(false, idle, early, first) }

func seatOf(webSocket bool, idle time.Duration, early, first string) *table {
	c, client := lines()
	r, runtime := lines()
	tb := &table{session: newSession(c, r, []byte(early), []byte(first), idle), client: client, runtime: runtime, done: make(chan struct{})}
	tb.up.webSocket, tb.down.webSocket = webSocket, webSocket
	go func() { defer close(tb.done); tb.session.run() }()
	return tb
}

func (tb *table) over() bool {
	synctest.Wait()
	select {
	case <-tb.done:
		return true
	default:
		return false
	}
}

func say(t *testing.T, from, to *line, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%q came as %q, %v", text, got, err)
	}
}

// Frames of a session.
const (
	spdyPingFrame = "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"
	spdyDataFrame = "\x00\x00\x00\x05\x00\x00\x00\x02hi"
	wsPingFrame   = "\x89\x81\x01\x02\x03\x04x"
	wsPongFrame   = "\x8a\x00"
	wsDataFrame   = "\x82\x03\x01hi"
)

// TestIdle: data resets the idle timeout, pings do not.
func TestIdle(t *testing.T) {
	for name, tt := range map[string]struct {
		webSocket        bool
		data, ping, pong string
	}{
		"SPDY":      {false, spdyDataFrame, spdyPingFrame, spdyPingFrame},
		"WebSocket": {true, wsDataFrame, wsPingFrame, wsPongFrame},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := seatOf(tt.webSocket, time.Hour, "", "")
				for i := range 5 {
					time.Sleep(50 * time.Minute)
					if i%2 == 0 {
						say(t, tb.client, tb.runtime, tt.data)
					} else {
						say(t, tb.runtime, tb.client, tt.data)
					}
				}
				for range 59 {
					time.Sleep(time.Minute)
					say(t, tb.client, tb.runtime, tt.ping)
					say(t, tb.runtime, tb.client, tt.pong)
				}
				time.Sleep(time.Minute - time.Second)
				if tb.over() {
					t.Fatal("it has ended before its time")
				}
				time.Sleep(time.Second)
				if !tb.over() {
					t.Fatal("an idle session goes on")
				}
				for name, side := range map[string]*line{"client": tb.client, "runtime": tb.runtime} {
					if _, err := side.Read(make([]byte, 1)); err == nil {
						t.Errorf("the %s's connection is open", name)
					}
				}
			})
		})
	}
}

func TestNeverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := seat(0, "", "")
		time.Sleep(1000 * time.Hour)
		say(t, tb.client, tb.runtime, "x")
		tb.end()
		tb.end() // again is no harm
		if !tb.over() {
			t.Error("it goes on")
		}
	})
}

// TestIdleWhileBlocked: a write that blocks because the client does not read does not
// reset the idle timeout.
func TestIdleWhileBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := seat(time.Hour, "", "")
		go func() { _, _ = tb.runtime.Write([]byte("nobody reads this")) }()
		time.Sleep(time.Hour + time.Second)
		if !tb.over() {
			t.Error("it goes on")
		}
	})
}

func TestWhatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := seat(0, "early", "first")
		for want, side := range map[string]*line{"early": tb.runtime, "first": tb.client} {
			got := make([]byte, 5)
			if _, err := io.ReadFull(side, got); err != nil || string(got) != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		tb.end()
		<-tb.done
	})
}

// TestClientEndsItsSide: after the end of stdin, output continues without time limit.
func TestClientEndsItsSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := seat(0, "", "")
		tb.client.CloseWrite()
		if _, err := tb.runtime.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("the runtime reads %v, want the end", err)
		}
		time.Sleep(100 * time.Hour)
		say(t, tb.runtime, tb.client, "late output")
		tb.runtime.CloseWrite()
		if _, err := tb.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("the client reads %v, want the end", err)
		}
		if !tb.over() {
			t.Error("it goes on with both sides ended")
		}
	})
}

// TestRuntimeEndsItsSide: the client receives all output, and has a limited time to
// close its side.
func TestRuntimeEndsItsSide(t *testing.T) {
	for name, leaves := range map[string]bool{"and the client": true, "and the client stays": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := seat(0, "", "")
				go func() {
					_, _ = tb.runtime.Write([]byte("last words"))
					tb.runtime.CloseWrite()
				}()
				got, err := io.ReadAll(tb.client)
				if err != nil || string(got) != "last words" {
					t.Fatalf("%q, %v", got, err)
				}
				if tb.over() {
					t.Fatal("it has ended before the client")
				}
				if leaves {
					tb.client.CloseWrite()
				} else {
					time.Sleep(drainTimeout)
				}
				if !tb.over() {
					t.Error("it goes on")
				}
			})
		})
	}
}

func TestSidesThatVanish(t *testing.T) {
	for name, vanish := range map[string]func(*table){
		"client":  func(tb *table) { tb.client.Close() },
		"runtime": func(tb *table) { tb.runtime.Close(); time.Sleep(drainTimeout) },
		"client that is written to": func(tb *table) {
			tb.client.in.Close()
			_, _ = tb.runtime.Write([]byte("x"))
		},
		"runtime that is written to": func(tb *table) {
			tb.runtime.in.Close()
			_, _ = tb.client.Write([]byte("x"))
			time.Sleep(drainTimeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := seat(0, "", "")
				if tb.over() {
					t.Fatal("it has ended at once")
				}
				vanish(tb)
				if !tb.over() {
					t.Error("it goes on")
				}
			})
		})
	}
}

// TestBuffers forwards messages of all sizes near the buffer sizes.
func TestBuffers(t *testing.T) {
	tb := seat(0, "", "")
	defer func() { tb.end(); <-tb.done }()
	random := rand.NewChaCha8([32]byte{1})
	sent, got := sha256.New(), sha256.New()
	sizes := []int{1, smallBuffer - 1, smallBuffer, smallBuffer + 1, largeBuffer, largeBuffer + smallBuffer, 100_000, 3, smallBuffer, largeBuffer, 1}
	go func() {
		for _, size := range sizes {
			message := make([]byte, size)
			_, _ = random.Read(message)
			sent.Write(message)
			_, _ = tb.client.Write(message)
		}
		tb.client.CloseWrite()
	}()
	if _, err := io.Copy(got, tb.runtime); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("what came is not what was sent")
	}
}
