package remotecommand

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// fake is the server side of a session, which a test scripts. Errors end its
// connection, which changes the client's result.
type fake struct {
	t       *testing.T
	conn    net.Conn
	in      *bufio.Reader
	request *http.Request
	session httpstream.Connection // after begin
	streams map[string]httpstream.Stream
	resets  map[string]bool // streams that are rejected
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

func lead(t *testing.T, conn net.Conn, script func(*fake)) {
	defer conn.Close()
	f := &fake{t: t, conn: conn, in: bufio.NewReader(conn), streams: map[string]httpstream.Stream{}, resets: map[string]bool{}}
	var err error
	if f.request, err = http.ReadRequest(f.in); err != nil {
		t.Errorf("the client's request: %v", err)
		return
	}
	script(f)
}

const upgradeTo = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n"

func (f *fake) say(b []byte) { _, _ = f.conn.Write(b) }

// buffered is a connection after its request was read.
type buffered struct {
	net.Conn
	r io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// begin upgrades the connection and accepts the streams of the query.
func (f *fake) begin() {
	f.say(fmt.Appendf(nil, upgradeTo, "v4.channel.k8s.io"))
	query, missing := f.request.URL.Query(), 1
	for _, name := range []string{"input", "output", "error", "tty"} {
		if query.Get(name) == "1" {
			missing++
		}
	}
	opened := make(chan httpstream.Stream)
	ended := make(chan struct{})
	defer close(ended)
	session, err := spdy.NewServerConnection(buffered{f.conn, f.in}, func(s httpstream.Stream, replied <-chan struct{}) error {
		if f.resets[s.Headers().Get(v1.StreamType)] {
			return fmt.Errorf("rejected")
		}
		go func() {
			<-replied // say may write between the parts of a frame otherwise
			select {
			case opened <- s:
			case <-ended:
			}
		}()
		return nil
	})
	if err != nil {
		f.t.Error(err)
		return
	}
	f.session = session
	for ; missing > 0; missing-- {
		select {
		case s := <-opened:
			f.streams[s.Headers().Get(v1.StreamType)] = s
		case <-session.CloseChan():
			return
		}
	}
}

// input reads the data of a stream until its end.
func (f *fake) input(stream string) []byte {
	all, _ := io.ReadAll(f.streams[stream])
	return all
}

func (f *fake) data(stream, text string, fin bool) {
	if len(text) > 0 {
		_, _ = io.WriteString(f.streams[stream], text)
	}
	if fin {
		_ = f.streams[stream].Close()
	}
}

// end ends the session like Kubernetes' server.
func (f *fake) end(status string) {
	f.data("error", status, false)
	_ = f.session.Close()
	f.wait()
}

// wait waits until the client has closed the connection.
func (f *fake) wait() { <-f.session.CloseChan() }

const (
	success = `{"metadata":{},"status":"Success"}`
	exit42  = `{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}`
)
