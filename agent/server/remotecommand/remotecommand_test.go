package remotecommand

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// typed is an input that blocks after its content until it is closed, like a terminal.
type typed struct {
	io.Reader
	closed chan struct{}
}

func typing(text string) *typed { return &typed{strings.NewReader(text), make(chan struct{})} }

func (t *typed) Read(b []byte) (int, error) {
	if n, err := t.Reader.Read(b); err == nil {
		return n, nil
	}
	<-t.closed
	return 0, errors.New("closed")
}

func (t *typed) Close() error { close(t.closed); return nil }

func TestRun(t *testing.T) {
	var asked *http.Request
	var got []byte
	dial := serve(t, func(f *fake) {
		asked = f.request
		f.begin()
		got = f.input("stdin")
		f.data("stdout", "out", false)
		f.data("stderr", "err", true)
		f.data("stdout", "", true)
		f.end(exit42)
	})
	var out, errs bytes.Buffer
	code, err := Run(t.Context(), Session{
		Dial: dial, Path: "/exec/ns/pod/main", Command: []string{"sh", "-c", "a b&c"},
		Stdin: io.NopCloser(strings.NewReader("input")), Stdout: &out, Stderr: &errs,
	})
	if code != 42 || err != nil || out.String() != "out" || errs.String() != "err" || string(got) != "input" {
		t.Errorf("%d, %v; stdout %q, stderr %q, stdin %q", code, err, out.String(), errs.String(), got)
	}
	want := "command=sh&command=-c&command=a+b%26c&error=1&input=1&output=1"
	if asked.URL.Path != "/exec/ns/pod/main" || asked.URL.RawQuery != want || asked.Method != "POST" {
		t.Errorf("asked %s %s, want the query %s", asked.Method, asked.URL, want)
	}
	if diff := cmp.Diff(protocols, asked.Header["X-Stream-Protocol-Version"]); diff != "" {
		t.Errorf("protocols (-want +got):\n%s", diff)
	}
}

// TestEnds checks the result of Run for each end of a session.
func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		script func(*fake)
		code   int
		is     error  // of it
		text   string // part of its text
	}{
		"success": {script: func(f *fake) { f.end(success) }},
		"code":    {script: func(f *fake) { f.end(exit42) }, code: 42},
		"streams end, connection stays": {script: func(f *fake) {
			f.data("stdout", "", true)
			f.data("error", exit42, true)
			f.wait()
		}, code: 42},
		"status in pieces": {script: func(f *fake) { f.data("error", exit42[:20], false); f.end(exit42[20:]) }, code: 42},
		"connection ends":  {script: func(f *fake) { f.data("error", exit42, false) }, code: 42},
		"unknown frames": {script: func(f *fake) {
			f.say([]byte{0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0})             // settings without entries
			f.say([]byte{0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 1}) // window update
			f.say([]byte{0, 0, 0, 99, 1, 0, 0, 4, 'd', 'a', 't', 'a'})       // no such stream
			f.end(exit42)
		}, code: 42},
		"cannot run": {script: func(f *fake) {
			f.end(`{"status":"Failure","reason":"InternalError","message":"no such file","code":500}`)
		}, text: "no such file"},
		"failure without words": {script: func(f *fake) { f.end(`{"status":"Failure","reason":"Odd"}`) }, text: "without a message"},
		"code that is none":     {script: func(f *fake) { f.end(strings.Replace(exit42, "42", "4x", 1)) }, text: `"4x"`},
		"code 0 that failed":    {script: func(f *fake) { f.end(strings.Replace(exit42, "42", "0", 1)) }, text: "exit code 0"},
		"code beyond":           {script: func(f *fake) { f.end(strings.Replace(exit42, "42", "256", 1)) }, text: `"256"`},
		"no status":             {script: func(f *fake) { f.end("") }, is: ErrNoStatus},
		"another status":        {script: func(f *fake) { f.end(`{"status":"Perhaps"}`) }, text: "error stream protocol error"},
		"text for a status":     {script: func(f *fake) { f.end("v1 says this") }, text: "error stream protocol error"},
		"half a status":         {script: func(f *fake) { f.end(exit42[:50]) }, text: "error stream protocol error"},
		"endless status": {script: func(f *fake) {
			f.data("error", strings.Repeat(" ", maxStatus+1), false)
			f.wait()
		}, is: errLongStatus},
		"vanishes":          {script: func(*fake) {}, is: ErrNoStatus},
		"vanishes in data":  {script: func(f *fake) { f.say([]byte{0, 0, 0, 3, 0, 0, 0, 9, 'a'}) }, is: ErrNoStatus},
		"vanishes in words": {script: func(f *fake) { f.say([]byte{0x80, 3, 0, 3, 0, 0, 0, 8, 0}) }, is: ErrNoStatus},
		"vanishes in a head": {script: func(f *fake) {
			f.say([]byte{0x80, 3, 0})
		}, is: ErrNoStatus},
		"short control frame": {script: func(f *fake) { f.say([]byte{0x80, 3, 0, 6, 0, 0, 0, 2, 0, 0}) }, is: ErrNoStatus},
		"another version":     {script: func(f *fake) { f.say([]byte{0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2}) }, is: ErrNoStatus},
		"HTTP again":          {script: func(f *fake) { f.say([]byte("\xffHTTP/1.1 500 no")) }, is: ErrNoStatus},
	} {
		t.Run(name, func(t *testing.T) {
			dial := serve(t, func(f *fake) { f.begin(); tt.script(f) })
			in := typing("")
			code, err := Run(t.Context(), Session{Dial: dial, Path: "/exec/n/p/c", Command: []string{"x"}, Stdin: in, Stdout: io.Discard})
			if code != tt.code || (err == nil) != (tt.is == nil && tt.text == "") {
				t.Fatalf("%d, %v; want %d, %v %s", code, err, tt.code, tt.is, tt.text)
			}
			if tt.is != nil && !errors.Is(err, tt.is) || tt.text != "" && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %v %s", err, tt.is, tt.text)
			}
			<-in.closed
		})
	}
}

// TestNoSession checks the errors before the start of a session.
func TestNoSession(t *testing.T) {
	answer := func(text string) func(*fake) { return func(f *fake) { f.say([]byte(text)) } }
	for name, tt := range map[string]struct {
		script func(*fake)
		code   int // of a Refused
		text   string
	}{
		"refused":           {answer("HTTP/1.1 409 Conflict\r\nContent-Length: 12\r\n\r\nnot running\n"), 409, "not running"},
		"refused, silently": {answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), 404, "404 Not Found"},
		"a long refusal": {func(f *fake) {
			f.say([]byte("HTTP/1.1 500 no\r\n\r\n" + strings.Repeat("a", 1<<20)))
		}, 500, strings.Repeat("a", maxText)},
		"no upgrade":           {answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), 200, "hi"},
		"WebSocket":            {answer("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), 101, `"websocket"`},
		"old protocol":         {answer(fmt.Sprintf(upgradeTo, "channel.k8s.io")), 101, `"channel.k8s.io"`},
		"garbage":              {answer("SSH-2.0-x\r\n\r\n"), 0, "malformed HTTP"},
		"silence":              {func(*fake) {}, 0, "EOF"},
		"a stream is refused":  {func(f *fake) { f.resets["error"] = true; f.begin() }, 0, "runtime rejected stream error"},
		"vanishes after words": {answer(fmt.Sprintf(upgradeTo, "v5.channel.k8s.io")), 0, ErrNoStatus.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), Session{Dial: serve(t, tt.script), Path: "/exec/n/p/c", Command: []string{"x"}, Stdout: io.Discard})
			if err == nil || !strings.Contains(err.Error(), tt.text) || len(err.Error()) > maxText+100 {
				t.Fatalf("%.200v; want %.200s", err, tt.text)
			}
			r := (*ResponseError)(nil)
			if is := errors.As(err, &r); is != (tt.code != 0) || is && r.Code != tt.code {
				t.Errorf("%+v, want the code %d", r, tt.code)
			}
		})
	}
}

func TestNothingToDo(t *testing.T) {
	in := typing("")
	if _, err := Run(t.Context(), Session{Stdin: in}); err == nil {
		t.Error("a session without a way to a server")
	}
	<-in.closed
	failed := errors.New("no way")
	dial := func(context.Context) (net.Conn, error) { return nil, failed }
	if _, err := Run(t.Context(), Session{Dial: dial, Stdout: io.Discard}); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
	if _, err := Run(t.Context(), Session{Dial: dial}); err == nil || errors.Is(err, failed) {
		t.Errorf("without streams: %v", err)
	}
}

// TestEndOfInput: the end of the input does not end the session, and the end of the
// command does not wait for the end of the input.
func TestEndOfInput(t *testing.T) {
	const size = 5<<20 + 3
	var sum []byte
	dial := serve(t, func(f *fake) {
		f.begin()
		got := sha256.Sum256(f.input("stdin"))
		f.data("stdout", "after the end", true)
		sum = got[:]
		f.end(success)
	})
	want := sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), want)
	var out bytes.Buffer
	code, err := Run(t.Context(), Session{Dial: dial, Stdin: io.NopCloser(in), Stdout: &out})
	if code != 0 || err != nil || out.String() != "after the end" || !bytes.Equal(sum, want.Sum(nil)) {
		t.Errorf("%d, %v, %q, the input's sum %x, want %x", code, err, out.String(), sum, want.Sum(nil))
	}
}

// endAtOnce is a reader that returns its last bytes together with io.EOF.
type endAtOnce struct{ text string }

func (e *endAtOnce) Read(b []byte) (int, error) {
	n := copy(b, e.text)
	e.text = e.text[n:]
	return n, io.EOF
}

func TestInputThatEndsWithItsLastBytes(t *testing.T) {
	var got []byte
	dial := serve(t, func(f *fake) { f.begin(); got = f.input("stdin"); f.end(success) })
	if _, err := Run(t.Context(), Session{Dial: dial, Stdin: io.NopCloser(&endAtOnce{"all"})}); err != nil || string(got) != "all" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTerminal(t *testing.T) {
	sizes := make(chan Size, 2)
	sizes <- Size{Width: 80, Height: 25}
	sizes <- Size{Width: 132, Height: 50}
	close(sizes)
	var got []string
	dial := serve(t, func(f *fake) {
		f.begin()
		if f.request.URL.Query().Get("error") != "" {
			t.Error("a terminal's errors are asked for apart")
		}
		for lines := bufio.NewScanner(f.streams["resize"]); len(got) < 2 && lines.Scan(); {
			got = append(got, lines.Text())
		}
		f.data("stdout", "screen", true)
		f.end(exit42)
	})
	var out bytes.Buffer
	code, err := Run(t.Context(), Session{Dial: dial, Stdin: typing(""), Stdout: &out, Stderr: io.Discard, TTY: true, Sizes: sizes})
	if code != 42 || err != nil || out.String() != "screen" {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	if diff := cmp.Diff([]string{`{"Width":80,"Height":25}`, `{"Width":132,"Height":50}`}, got); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

// TestPing: pings of the server get a reply, its replies do not.
func TestPing(t *testing.T) {
	dial := serve(t, func(f *fake) {
		pongs := &pongReader{Reader: f.conn, got: make(chan uint32, 9)}
		f.in.Reset(pongs)
		f.begin()
		f.say([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 3})
		f.say([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 4})
		if id := <-pongs.got; id != 4 {
			t.Errorf("reply to %d", id)
		}
		f.end(success)
	})
	if code, err := Run(t.Context(), Session{Dial: dial, Stdout: io.Discard}); code != 0 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// pongReader reports the IDs of the pings that are read, from a connection of frames.
type pongReader struct {
	io.Reader
	got  chan uint32
	rest []byte // the start of a frame
}

func (p *pongReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.rest = append(p.rest, b[:n]...)
	for len(p.rest) >= 8 {
		end := 8 + int(binary.BigEndian.Uint32(p.rest[4:])&0xffffff)
		if len(p.rest) < end {
			break
		}
		if p.rest[0] == 0x80 && p.rest[3] == 6 {
			p.got <- binary.BigEndian.Uint32(p.rest[8:])
		}
		p.rest = p.rest[end:]
	}
	return n, err
}

// TestMuchOutput: frames may have any size.
func TestMuchOutput(t *testing.T) {
	sizes := []int{1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 48<<10 + 7, 1<<24 - 1}
	want := sha256.New()
	dial := serve(t, func(f *fake) {
		f.begin()
		source := rand.NewChaCha8([32]byte{2})
		for _, size := range sizes {
			text := make([]byte, size)
			_, _ = source.Read(text)
			want.Write(text)
			f.data("stdout", string(text), false)
		}
		f.end(success)
	})
	got := sha256.New()
	if code, err := Run(t.Context(), Session{Dial: dial, Stdout: got}); code != 0 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("sum %x, want %x", got.Sum(nil), want.Sum(nil))
	}
}

// TestContextEnds: Run returns the cause of the context's end in every phase.
func TestContextEnds(t *testing.T) {
	why := errors.New("enough")
	for name, script := range map[string]func(*fake, func()){
		"before the answer":  func(f *fake, end func()) { end() },
		"before the streams": func(f *fake, end func()) { f.say(fmt.Appendf(nil, upgradeTo, "v4.channel.k8s.io")); end() },
		"in the session":     func(f *fake, end func()) { f.begin(); f.data("stdout", "x", false); end() },
		"in a frame":         func(f *fake, end func()) { f.begin(); f.say([]byte{0, 0, 0, 3, 0, 0, 9, 9, 'a'}); end() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			dial := serve(t, func(f *fake) {
				script(f, func() { cancel(why) })
				if f.session != nil {
					f.wait()
					return
				}
				_, _ = io.Copy(io.Discard, f.in) // until the client closes
			})
			in := typing("")
			if _, err := Run(ctx, Session{Dial: dial, Stdin: in, Stdout: io.Discard}); !errors.Is(err, why) {
				t.Errorf("%v, want %v", err, why)
			}
			<-in.closed
		})
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
func (f failing) Read([]byte) (int, error)  { return 0, f.err }

func TestOwnStreamsFail(t *testing.T) {
	why := errors.New("disk is full")
	for name, c := range map[string]Session{
		"output": {Stdout: failing{why}},
		"errors": {Stdout: io.Discard, Stderr: failing{why}},
		"input":  {Stdout: io.Discard, Stdin: io.NopCloser(failing{why})},
	} {
		t.Run(name, func(t *testing.T) {
			c.Dial = serve(t, func(f *fake) {
				f.begin()
				f.data("stdout", "x", false)
				if c.errors() {
					f.data("stderr", "x", false)
				}
				f.wait()
			})
			if _, err := Run(t.Context(), c); !errors.Is(err, why) {
				t.Errorf("%v, want %v", err, why)
			}
		})
	}
}

// TestLostOutput: a command whose output could not be written did not succeed, even if
// its status has arrived.
func TestLostOutput(t *testing.T) {
	why := errors.New("disk is full")
	for range 50 {
		dial := serve(t, func(f *fake) { f.begin(); f.data("stdout", "x", false); f.end(success) })
		if _, err := Run(t.Context(), Session{Dial: dial, Stdout: failing{why}}); !errors.Is(err, why) {
			t.Fatalf("%v, want %v", err, why)
		}
	}
}

// TestInputWhileNobodyReads: a server that has stopped reading blocks the input, but not
// the session.
func TestInputWhileNobodyReads(t *testing.T) {
	input := &stalling{waits: make(chan struct{})}
	ended := make(chan struct{})
	dial := serve(t, func(f *fake) {
		f.begin()
		<-input.waits
		for range 8 {
			f.data("stdout", "x", false)
		}
		f.data("error", exit42, true)
		f.data("stdout", "", true)
		<-ended
		_ = f.session.Close() // it no longer reads, and does not notice the end
	})
	var out bytes.Buffer
	code, err := Run(t.Context(), Session{Dial: dial, Stdin: io.NopCloser(input), Stdout: &out})
	close(ended)
	if code != 42 || err != nil || out.String() != strings.Repeat("x", 8) {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
}

// stalling is an endless input. It closes waits when nothing was read for a while.
type stalling struct {
	waits chan struct{}
	once  sync.Once
	last  *time.Timer
}

func (s *stalling) Read(b []byte) (int, error) {
	if s.last == nil {
		s.last = time.AfterFunc(300*time.Millisecond, func() { s.once.Do(func() { close(s.waits) }) })
	}
	s.last.Reset(300 * time.Millisecond)
	return len(b), nil
}

func TestNoAnswer(t *testing.T) {
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"no connection": func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		"silence":       func(context.Context) (net.Conn, error) { ours, _ := net.Pipe(); return ours, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				_, err := Run(t.Context(), Session{Dial: dial, Stdout: io.Discard})
				if !errors.Is(err, ErrNoAnswer) || time.Since(begun) != beginTimeout {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// scripted is a connection with a fixed response.
type scripted struct {
	net.Conn // nil: what is not here is not called
	*bytes.Reader
}

func (s scripted) Read(b []byte) (int, error) { return s.Reader.Read(b) }
func (scripted) Write(b []byte) (int, error)  { return len(b), nil }
func (scripted) Close() error                 { return nil }

// count is a writer that counts bytes.
type count struct{ n int }

func (c *count) Write(b []byte) (int, error) { c.n += len(b); return len(b), nil }

// FuzzAnswer: each response ends the session, with a valid exit code and no more output
// than the server has sent.
func FuzzAnswer(f *testing.F) {
	good := fmt.Sprintf(upgradeTo, "v4.channel.k8s.io")
	f.Add([]byte(good + "\x00\x00\x00\x05\x01\xff\xff\xffabc"))
	f.Add([]byte(good + "\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x05\x00\x00\x00\x01"))
	f.Add([]byte("HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		synctest.Test(t, func(t *testing.T) { // also fails if a goroutine is left
			var out, errs count
			dial := func(context.Context) (net.Conn, error) { return scripted{Reader: bytes.NewReader(said)}, nil }
			code, err := Run(t.Context(), Session{Dial: dial, Stdin: io.NopCloser(strings.NewReader("in")), Stdout: &out, Stderr: &errs})
			if code < 0 || code > 255 || code != 0 && err != nil {
				t.Errorf("code %d, %v", code, err)
			}
			if err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
			if out.n+errs.n > len(said) {
				t.Errorf("%d and %d bytes of %d", out.n, errs.n, len(said))
			}
			time.Sleep(beginTimeout) // the client's own waits end
		})
	})
}
