package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echoed is a Link before a server that repeats what it hears.
func echoed(t *testing.T) *Link {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLink(front, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr().String())
	})
	t.Cleanup(func() {
		l.Close()
		_ = server.Close()
		wg.Wait()
	})
	return l
}

func dialed(t *testing.T, l *Link) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// ask says something and reads what comes of it.
func ask(conn net.Conn, text []byte) ([]byte, error) {
	if _, err := conn.Write(text); err != nil {
		return nil, err
	}
	got := make([]byte, len(text))
	n, err := io.ReadFull(conn, got)
	return got[:n], err
}

func TestLinkPasses(t *testing.T) {
	l := echoed(t)
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	conn := dialed(t, l)
	go func() { _, _ = conn.Write(text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("what comes back differs, %v", err)
	}
	_ = conn.Close()
	for l.Left().IsZero() {
		time.Sleep(time.Millisecond)
	}
}

func TestLinkIsSlow(t *testing.T) {
	l := echoed(t)
	conn := dialed(t, l)
	l.SetMode(Slow)
	began := time.Now()
	if _, err := ask(conn, make([]byte, SlowRate)); err != nil {
		t.Fatal(err)
	}
	// A second there, and most of it once more for what comes back meanwhile.
	if took := time.Since(began); took < time.Second || took > 5*time.Second {
		t.Errorf("%d bytes there and back took %v", SlowRate, took)
	}
	l.SetMode(Pass)
	began = time.Now()
	if _, err := ask(conn, make([]byte, 8*SlowRate)); err != nil || time.Since(began) > 4*time.Second {
		t.Errorf("it is still slow: %v, %v", time.Since(began), err)
	}
}

func TestLinkDrops(t *testing.T) {
	l := echoed(t)
	l.SetMode(Drop)
	failed := 0
	for range 2 * dropEach {
		if conn, err := net.Dial("tcp", l.Address()); err != nil {
			failed++ // the reset came before connect(2) was done
		} else {
			if got, err := ask(conn, []byte("hello")); err != nil || string(got) != "hello" {
				failed++
			}
			_ = conn.Close()
		}
	}
	accepted, dropped := l.Counts()
	if failed != 2 || accepted != 2*dropEach || dropped != 2 {
		t.Errorf("%d of %d failed, %d were dropped", failed, accepted, dropped)
	}
}

func TestLinkBabbles(t *testing.T) {
	l := echoed(t)
	l.SetMode(Garbage)
	conn := dialed(t, l)
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	// That not all was heard may end in a reset.
	if got, _ := io.ReadAll(conn); string(got) != garbage {
		t.Errorf("it says %q", got)
	}
}

func TestLinkHangs(t *testing.T) {
	l := echoed(t)
	conn := dialed(t, l)
	if _, err := ask(conn, []byte("before")); err != nil {
		t.Fatal(err)
	}
	l.SetMode(Hang)
	late := dialed(t, l)
	for _, c := range []net.Conn{conn, late} {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		got, err := ask(c, []byte("there"))
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() || len(got) != 0 {
			t.Errorf("got %q, %v", got, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	}
	// Who leaves is noticed though nothing is carried.
	if !l.Left().IsZero() {
		t.Error("somebody has left")
	}
	_ = late.Close()
	for l.Left().IsZero() {
		time.Sleep(time.Millisecond)
	}
	l.SetMode(Pass)
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "there" {
		t.Errorf("what waited comes as %q, %v", got, err)
	}
}

func TestLinkCuts(t *testing.T) {
	l := echoed(t)
	conn := dialed(t, l)
	if _, err := ask(conn, []byte("before")); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a connection that was cut", n)
	}
	if got, err := ask(dialed(t, l), []byte("after")); err != nil || string(got) != "after" {
		t.Errorf("got %q, %v", got, err)
	}
	if !l.Left().IsZero() {
		t.Error("a cut counts as the client's own end")
	}
}

func TestLinkWithoutServer(t *testing.T) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLink(front, func(context.Context) (net.Conn, error) { return nil, errors.New("down") })
	defer l.Close()
	conn, err := net.Dial("tcp", l.Address())
	if err != nil {
		return // the reset came before connect(2) was done
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of no server", n)
	}
}
