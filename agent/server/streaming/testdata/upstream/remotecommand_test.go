package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tinylet/tinylet/agent/server/remotecommand"
)

// board returns a dial func for agent/server/streaming in front of the upstream
// streaming server, for tinylet's own client.
func board(t *testing.T) func(context.Context) (net.Conn, error) {
	t.Helper()
	front := httptest.NewServer(handlerOf(t))
	t.Cleanup(front.Close)
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", front.Listener.Addr().String())
	}
}

// execute runs a command, or attaches without one.
func execute(t *testing.T, dial func(context.Context) (net.Conn, error), command string, c remotecommand.Session) (int, error) {
	t.Helper()
	c.Dial, c.Path, c.Command = dial, "/exec/ns/pod/main", []string{command}
	if command == "" {
		c.Path, c.Command = "/attach/ns/pod/main", nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return remotecommand.Run(ctx, c)
}

func TestOwnClientExitCodeAndStreamsApart(t *testing.T) {
	var out, errs bytes.Buffer
	code, err := execute(t, board(t), "apart", remotecommand.Session{Stdout: &out, Stderr: &errs})
	if code != 3 || err != nil || out.String() != "out" || errs.String() != "err" {
		t.Errorf("%d, %v, stdout %q, stderr %q; want code 3, out, err", code, err, out.String(), errs.String())
	}
}

func TestOwnClientFailure(t *testing.T) {
	_, err := execute(t, board(t), "broken", remotecommand.Session{Stdout: io.Discard})
	if f := (*remotecommand.CommandError)(nil); !errors.As(err, &f) || !strings.Contains(f.Text, "no such program") {
		t.Errorf("%v", err)
	}
}

func TestOwnClientIsRefused(t *testing.T) {
	c := remotecommand.Session{Dial: board(t), Path: "/exec/ns/pod/main", Stdout: io.Discard}
	_, err := remotecommand.Run(t.Context(), c)
	if r := (*remotecommand.ResponseError)(nil); !errors.As(err, &r) || r.Code != http.StatusBadRequest || !strings.Contains(r.Text, "no command") {
		t.Errorf("no command: %v", err)
	}
}

func TestOwnClientEcho(t *testing.T) {
	for name, command := range map[string]string{"exec": "cat", "attach": ""} {
		var out bytes.Buffer
		code, err := execute(t, board(t), command, remotecommand.Session{Stdin: io.NopCloser(strings.NewReader("there and back")), Stdout: &out})
		if code != 0 || err != nil || out.String() != "there and back" {
			t.Errorf("%s: %q, %d, %v", name, out.String(), code, err)
		}
	}
}

// TestOwnClientEndOfInput: the command responds only after the end of 100 MB of input.
func TestOwnClientEndOfInput(t *testing.T) {
	var out bytes.Buffer
	sum := sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), 100<<20), sum)
	code, err := execute(t, board(t), "sum", remotecommand.Session{Stdin: io.NopCloser(in), Stdout: &out})
	if code != 0 || err != nil || out.String() != fmt.Sprintf("%x", sum.Sum(nil)) {
		t.Errorf("%q, %d, %v; want %x", out.String(), code, err, sum.Sum(nil))
	}
}

func TestOwnClientMuchOutput(t *testing.T) {
	got, want := sha256.New(), sha256.New()
	if _, err := io.CopyN(want, rand.NewChaCha8([32]byte{1}), 100<<20); err != nil {
		t.Fatal(err)
	}
	code, err := execute(t, board(t), "much", remotecommand.Session{Stdout: got})
	if code != 0 || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%x, %d, %v; want %x", got.Sum(nil), code, err, want.Sum(nil))
	}
}

// TestOwnClientBothWays transfers much data in both directions at the same time.
func TestOwnClientBothWays(t *testing.T) {
	got, want := sha256.New(), sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{3}), 50<<20), want)
	code, err := execute(t, board(t), "cat", remotecommand.Session{Stdin: io.NopCloser(in), Stdout: got})
	if code != 0 || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%x, %d, %v; want %x", got.Sum(nil), code, err, want.Sum(nil))
	}
}

func TestOwnClientResize(t *testing.T) {
	sizes := make(chan remotecommand.Size, 2)
	sizes <- remotecommand.Size{Width: 80, Height: 25}
	sizes <- remotecommand.Size{Width: 132, Height: 50}
	var out bytes.Buffer
	in, typing := io.Pipe() // a terminal's input is open
	defer typing.Close()
	code, err := execute(t, board(t), "size", remotecommand.Session{Stdin: in, Stdout: &out, TTY: true, Sizes: sizes})
	if want := "80x25 tty=true\n132x50 tty=true\n"; code != 0 || err != nil || out.String() != want {
		t.Errorf("%q, %d, %v; want %q", out.String(), code, err, want)
	}
}

// TestOwnClientHundredTimes: the last output of a command is never lost.
func TestOwnClientHundredTimes(t *testing.T) {
	dial := board(t)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 100 {
				var out, errs bytes.Buffer
				code, err := execute(t, dial, "apart", remotecommand.Session{Stdout: &out, Stderr: &errs, Stdin: io.NopCloser(strings.NewReader("not read"))})
				if code != 3 || err != nil || out.String() != "out" || errs.String() != "err" {
					t.Errorf("%d, %v, stdout %q, stderr %q", code, err, out.String(), errs.String())
					return
				}
			}
		})
	}
	clients.Wait()
}
