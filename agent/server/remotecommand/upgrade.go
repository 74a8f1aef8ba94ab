package remotecommand

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Limits of a response, in bytes.
const (
	maxHead = 64 << 10 // of the header
	maxText = 16 << 10 // of an error
)

const protocolSPDY = "SPDY/3.1"

// headerProtocol is the header with the protocol of the streams.
const headerProtocol = "X-Stream-Protocol-Version"

// protocols are the supported protocols, in order of preference. They report the exit
// code and support terminal resizing. Over SPDY they are equal: v5 adds the half-close
// of stdin to v4, which SPDY has anyway.
var protocols = []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}

// requestUpgrade requests the upgrade, and returns a reader of the data after it.
func requestUpgrade(conn net.Conn, c *Session) (*bufio.Reader, error) {
	r := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: c.Path, RawQuery: query(c)}, Host: "node",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Connection":   {"Upgrade"},
			"Upgrade":      {protocolSPDY},
			headerProtocol: protocols,
			"User-Agent":   {""}, // none
		},
	}
	sent := r.Write(conn) // a server that rejects the request may not read all of it
	head := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReaderSize(head, bufferSize)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		if sent != nil {
			err = sent
		}
		// Not wrapped: callers must not take the connection's error for one of
		// their streams.
		return nil, fmt.Errorf("request session: %v", err)
	}
	defer resp.Body.Close() // empty for an upgrade
	if err := checkUpgrade(resp); err != nil {
		return nil, err
	}
	head.N = math.MaxInt64
	return in, nil
}

func query(c *Session) string {
	q := url.Values{}
	if len(c.Command) > 0 {
		q["command"] = c.Command
	}
	for name, asked := range map[string]bool{"input": c.Stdin != nil, "output": c.Stdout != nil, "error": c.errors(), "tty": c.TTY} {
		if asked {
			q.Set(name, "1")
		}
	}
	return q.Encode()
}

// errors reports whether the session has a stderr stream.
func (c *Session) errors() bool { return c.Stderr != nil && !c.TTY }

// checkUpgrade returns nil for the requested upgrade, and a *Refused for other responses.
func checkUpgrade(resp *http.Response) error {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // an incomplete text is used too
		said := strings.TrimSpace(string(text))
		if said == "" {
			said = fmt.Sprintf("server responded with %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		}
		return &ResponseError{Code: resp.StatusCode, Text: said}
	}
	given := resp.Header.Get("Upgrade")
	if !strings.EqualFold(given, protocolSPDY) {
		return &ResponseError{Code: resp.StatusCode, Text: fmt.Sprintf("server upgraded to %.40q instead of %s", given, protocolSPDY)}
	}
	if p := resp.Header.Get(headerProtocol); !slices.Contains(protocols, p) {
		return &ResponseError{Code: resp.StatusCode, Text: fmt.Sprintf("server selected protocol %.40q: must be one of %s, which report the exit code", p, strings.Join(protocols, ", "))}
	}
	return nil
}
