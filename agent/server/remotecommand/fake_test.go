package remotecommand

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// fake is the server side of a session, which a test scripts. Errors end its
// connection, which changes the client's result.
type fake struct {
	t       *testing.T
	conn    net.Conn
	in      *bufio.Reader
	request *http.Request
	packed  bytes.Buffer // all headers
	headers io.Reader    // unpacks them
	ids     map[string]uint32
}

// serve returns a dial func for a fake that runs script once.
func serve(t *testing.T, script func(*fake)) func(context.Context) (net.Conn, error) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		lead(t, conn, script)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Addr().String())
	}
}

// pipe is serve over an unbuffered connection, so that in a testing/synctest bubble no
// data is in flight when all goroutines are blocked.
func pipe(t *testing.T, script func(*fake)) func(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); lead(t, theirs, script) }()
	t.Cleanup(func() { ours.Close(); <-done })
	return func(context.Context) (net.Conn, error) { return ours, nil }
}

func lead(t *testing.T, conn net.Conn, script func(*fake)) {
	defer conn.Close()
	f := &fake{t: t, conn: conn, in: bufio.NewReader(conn), ids: map[string]uint32{}}
	var err error
	if f.request, err = http.ReadRequest(f.in); err != nil {
		t.Errorf("the client's request: %v", err)
		return
	}
	script(f)
}

const upgradeTo = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n"

func (f *fake) say(b []byte) { _, _ = f.conn.Write(b) }

// begin upgrades the connection and accepts the streams of the query.
func (f *fake) begin() {
	f.say(fmt.Appendf(nil, upgradeTo, "v4.channel.k8s.io"))
	query, expected := f.request.URL.Query(), 1
	for _, name := range []string{"input", "output", "error", "tty"} {
		if query.Get(name) == "1" {
			expected++
		}
	}
	for range expected {
		f.open()
	}
	for _, id := range f.ids {
		f.control(frameSynReply, id, "\x78garbage of headers")
	}
}

// open reads a SYN_STREAM frame.
func (f *fake) open() {
	kind, _, payload := f.read()
	if kind != frameSynStream || len(payload) < 10 {
		f.t.Errorf("frame %d with %d bytes where a stream was to open", kind, len(payload))
		f.conn.Close()
		return
	}
	f.packed.Write(payload[10:])
	if f.headers == nil {
		f.packed.Next(len(zlibHead))
		f.headers = flate.NewReader(&f.packed)
	}
	words := func() string {
		var n uint32
		if err := binary.Read(f.headers, binary.BigEndian, &n); err != nil || n > 100 {
			f.t.Errorf("headers: a word of %d bytes, %v", n, err)
			return ""
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(f.headers, b); err != nil {
			f.t.Errorf("headers: %v", err)
		}
		return string(b)
	}
	var count uint32
	if err := binary.Read(f.headers, binary.BigEndian, &count); err != nil || count != 1 {
		f.t.Errorf("%d headers, %v", count, err)
	}
	if name := words(); name != "streamtype" {
		f.t.Errorf("a header %q", name)
	}
	f.ids[words()] = binary.BigEndian.Uint32(payload)
}

// read reads a frame. It returns its kind, or 0 for data, its header and its payload.
// At the end of the connection the header is zero.
func (f *fake) read() (kind uint16, head [frameHead]byte, payload []byte) {
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, head, nil
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[4:])&0xffffff)
	_, _ = io.ReadFull(f.in, payload)
	if head[0]&0x80 == 0 {
		return 0, head, payload
	}
	return binary.BigEndian.Uint16(head[2:]), head, payload
}

// input reads the data of a stream until its end.
func (f *fake) input(stream string) []byte {
	var all []byte
	for {
		kind, head, payload := f.read()
		if head == ([frameHead]byte{}) {
			return append(all, "[cut]"...)
		}
		if kind != 0 || binary.BigEndian.Uint32(head[:]) != f.ids[stream] {
			f.t.Errorf("a frame %x while %s is read", head, stream)
		}
		all = append(all, payload...)
		if head[4]&flagFin != 0 {
			return all
		}
	}
}

func (f *fake) data(stream, text string, fin bool) {
	f.say(dataFrame(append(make([]byte, frameHead), text...), f.ids[stream], fin))
}

func (f *fake) control(kind uint16, word uint32, rest string) {
	b := binary.BigEndian.AppendUint32(controlFrame(nil, kind, 4+len(rest)), word)
	f.say(append(b, rest...))
}

func (f *fake) reset(stream string) { f.control(frameRstStream, f.ids[stream], "\x00\x00\x00\x05") }

// end ends the session like Kubernetes' server.
func (f *fake) end(status string) {
	f.data("error", status, false)
	for name := range f.ids {
		f.reset(name)
	}
	f.control(frameGoAway, 0, "\x00\x00\x00\x00")
	_, _ = io.Copy(io.Discard, f.in) // the client ends the connection
}

const (
	success = `{"metadata":{},"status":"Success"}`
	exit42  = `{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}`
)
