package streaming

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxHead is how many bytes of the runtime's answer are read before the
// upgrade: its head, or an error with its text.
const maxHead = 64 << 10

// answer is a runtime that has agreed to an upgrade.
type answer struct {
	conn   net.Conn
	header http.Header // for the client
	rest   []byte      // what came behind the head

	webSocket bool
}

// ask connects to the runtime's streaming server and asks it for the upgrade.
// The connection is the caller's if there is no error. An answer that is no
// upgrade is an error with the runtime's own status and text.
func ask(ctx context.Context, to target, method string, up *upgrade, limit time.Duration) (*answer, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(limited, to.network, to.address)
	if err != nil {
		return nil, unanswered(ctx, limited, to, limit, err)
	}
	stop := context.AfterFunc(limited, func() { conn.Close() })
	a, err := converse(conn, to, method, up)
	if !stop() || err != nil { // also when it was closed in the same moment
		conn.Close()
		return nil, unanswered(ctx, limited, to, limit, err)
	}
	return a, nil
}

// converse sends the request and reads the answer.
func converse(conn net.Conn, to target, method string, up *upgrade) (*answer, error) {
	u, err := url.ParseRequestURI(to.uri)
	if err != nil {
		return nil, err
	}
	up.header["User-Agent"] = []string{""} // none
	r := &http.Request{Method: method, URL: u, Host: to.host, Header: up.header, ProtoMajor: 1, ProtoMinor: 1}
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	in := bufio.NewReaderSize(io.LimitReader(conn, maxHead), 1<<10)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, passedOn(resp)
	}
	header, ok := up.granted(resp.Header)
	if !ok {
		return nil, &refusal{code: http.StatusBadGateway, text: fmt.Sprintf("the container runtime upgrades to %.40q where %s was asked for", resp.Header.Get("Upgrade"), up.protocol())}
	}
	return &answer{conn: conn, header: header, rest: unread(in), webSocket: up.webSocket}, nil
}

// passedOn is the runtime's own refusal. What is none, such as a redirect or
// a page, is the runtime's mistake.
func passedOn(resp *http.Response) *refusal {
	if resp.StatusCode < 400 || resp.StatusCode > 599 {
		return &refusal{code: http.StatusBadGateway, text: fmt.Sprintf("the container runtime's streaming server answers %d where it was asked for an upgrade", resp.StatusCode)}
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // as much as came
	return &refusal{code: resp.StatusCode, header: pick(resp.Header, refusedWith), text: string(text)}
}

// unanswered says why there is no session: limited ends by the limit or with
// ctx, which is the client's.
func unanswered(ctx, limited context.Context, to target, limit time.Duration, err error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for the container runtime's streaming server at %s: %w", to.address, err)
	}
	if limited.Err() != nil {
		return &refusal{code: http.StatusGatewayTimeout, text: fmt.Sprintf("the container runtime's streaming server at %s did not answer in %v", to.address, limit)}
	}
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r
	}
	return &refusal{code: http.StatusBadGateway, text: fmt.Sprintf("ask the container runtime's streaming server at %s: %.300s", to.address, err)}
}
