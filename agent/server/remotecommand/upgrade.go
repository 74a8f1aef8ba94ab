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

// Limits of an answer, in bytes.
const (
	maxHead = 64 << 10 // before the session
	maxText = 16 << 10 // of a refusal
)

const protocolSPDY = "SPDY/3.1"

// headerProtocol names what is spoken on the streams.
const headerProtocol = "X-Stream-Protocol-Version"

// protocols are those that tell an exit code and can change a terminal's
// size, the best first. Over SPDY the two are one: v5 adds to v4 what SPDY
// has always had, the end of the input alone.
var protocols = []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}

// begin asks for the upgrade; what follows it is read from the reader.
func begin(conn net.Conn, c *Session) (*bufio.Reader, error) {
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
	sent := r.Write(conn) // who refuses may not read all of it
	head := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReaderSize(head, bufferSize)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		if sent != nil {
			err = sent
		}
		// Its cause is the connection's, not that of the caller's streams.
		return nil, fmt.Errorf("ask for a session: %v", err)
	}
	defer resp.Body.Close() // an upgrade has none
	if err := upgraded(resp); err != nil {
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

// errors says whether the command's errors come apart from its output.
func (c *Session) errors() bool { return c.Stderr != nil && !c.TTY }

// upgraded says why an answer is no session.
func upgraded(resp *http.Response) error {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // as much as came
		said := strings.TrimSpace(string(text))
		if said == "" {
			said = fmt.Sprintf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		}
		return &Refused{Code: resp.StatusCode, Text: said}
	}
	given := resp.Header.Get("Upgrade")
	if !strings.EqualFold(given, protocolSPDY) {
		return &Refused{Code: resp.StatusCode, Text: fmt.Sprintf("the server upgrades to %.40q where %s was asked for", given, protocolSPDY)}
	}
	if p := resp.Header.Get(headerProtocol); !slices.Contains(protocols, p) {
		return &Refused{Code: resp.StatusCode, Text: fmt.Sprintf("the server speaks %.40q, and none of %s, which tell how a command ends", p, strings.Join(protocols, ", "))}
	}
	return nil
}
