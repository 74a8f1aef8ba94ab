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

// maxHead limits the bytes of the runtime's response that are read before the upgrade:
// the header, or an error with its text.
const maxHead = 64 << 10

// upgraded is a successful upgrade of the connection to the runtime.
type upgraded struct {
	conn   net.Conn
	header http.Header // for the client
	rest   []byte      // data received after the header

	webSocket bool
}

// dialUpgrade connects to the runtime's streaming server and requests the upgrade. If there is
// no error, the caller owns the connection. A response other than an upgrade is
// returned as an error with the runtime's status and text.
func dialUpgrade(ctx context.Context, to target, method string, up *upgrade, limit time.Duration) (*upgraded, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(limited, to.network, to.address)
	if err != nil {
		return nil, unanswered(ctx, limited, to, limit, err)
	}
	stop := context.AfterFunc(limited, func() { conn.Close() })
	a, err := converse(conn, to, method, up)
	if !stop() || err != nil { // also if the connection was closed at the same time
		conn.Close()
		return nil, unanswered(ctx, limited, to, limit, err)
	}
	return a, nil
}

// converse sends the request and reads the response.
func converse(conn net.Conn, to target, method string, up *upgrade) (*upgraded, error) {
	u, err := url.ParseRequestURI(to.uri)
	if err != nil {
		return nil, err
	}
	up.header["User-Agent"] = []string{""} // none
	r := &http.Request{Method: method, URL: u, Host: to.host, Header: up.header, ProtoMajor: 1, ProtoMinor: 1}
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("send upgrade request: %w", err)
	}
	in := bufio.NewReaderSize(io.LimitReader(conn, maxHead), 1<<10)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, fmt.Errorf("read upgrade response: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, passedOn(resp)
	}
	header, ok := up.granted(resp.Header)
	if !ok {
		return nil, &httpError{code: http.StatusBadGateway, text: fmt.Sprintf("container runtime upgraded to %.40q instead of %s", resp.Header.Get("Upgrade"), up.protocol())}
	}
	return &upgraded{conn: conn, header: header, rest: unread(in), webSocket: up.webSocket}, nil
}

// passedOn returns the runtime's error response. A response that is neither an upgrade
// nor an error, such as a redirect, becomes a 502.
func passedOn(resp *http.Response) *httpError {
	if resp.StatusCode < 400 || resp.StatusCode > 599 {
		return &httpError{code: http.StatusBadGateway, text: fmt.Sprintf("container runtime's streaming server responded with %d instead of an upgrade", resp.StatusCode)}
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // an incomplete text is used too
	return &httpError{code: resp.StatusCode, header: pick(resp.Header, refusedWith), text: string(text)}
}

// unanswered returns the error of a failed upgrade. ctx is the client's context,
// limited ends with it or at the limit.
func unanswered(ctx, limited context.Context, to target, limit time.Duration, err error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for the container runtime's streaming server at %s: %w", to.address, err)
	}
	if limited.Err() != nil {
		return &httpError{code: http.StatusGatewayTimeout, text: fmt.Sprintf("container runtime's streaming server at %s did not respond within %v", to.address, limit)}
	}
	if r := (*httpError)(nil); errors.As(err, &r) {
		return r
	}
	return &httpError{code: http.StatusBadGateway, text: fmt.Sprintf("request upgrade from the container runtime's streaming server at %s: %.300s", to.address, err)}
}
