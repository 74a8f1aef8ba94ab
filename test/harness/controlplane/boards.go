//go:build cluster

package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

const (
	firstBoard = 10 // last number of the first board's address
	maxBoards  = 200
)

// BoardNet makes the network of a board that is called name, for
// board.VMOptions. Asked again it returns the same, for the board's next boot.
// Only one board may run with it at a time.
func (c *Cluster) BoardNet(t *testing.T, name string) *board.Network {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	n, known := c.boards[name]
	if !known {
		n = len(c.boards)
		if n >= maxBoards {
			t.Fatalf("no address is left for board %s", name)
		}
		if err := c.addTap(t.Context(), n); err != nil {
			t.Fatalf("make the network of board %s: %v", name, err)
		}
		c.boards[name] = n
	}
	ip := hostAddress.Addr().As4()
	ip[3] = byte(firstBoard + n)
	return &board.Network{
		Namespace: c.ns.name,
		Tap:       tap(n),
		MAC:       net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x00, ip[3]},
		Address:   netip.PrefixFrom(netip.AddrFrom4(ip), hostAddress.Bits()),
		Gateway:   hostAddress.Addr(),
		Hostname:  name,
	}
}

func tap(n int) string { return fmt.Sprintf("board%d", n) }

func (c *Cluster) addTap(ctx context.Context, n int) error {
	for _, args := range [][]string{
		{"tuntap", "add", "dev", tap(n), "mode", "tap"},
		{"link", "set", tap(n), "master", bridge, "up"},
	} {
		if err := c.ns.ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Gone removes a board from the servers' network. Otherwise they would search
// for it for minutes, in broadcasts that reach and count at all others.
// BoardNet must not be asked for it again.
func (c *Cluster) Gone(t *testing.T, name string) {
	t.Helper()
	address := c.BoardNet(t, name).Address.Addr()
	if err := c.ns.ip(context.WithoutCancel(t.Context()), "route", "add", "unreachable", address.String()); err != nil {
		t.Errorf("tell that board %s is gone: %v", name, err)
	}
}

// Partition cuts a board's link: nothing goes in or out any more, without a
// sign of it at the board's network card.
func (c *Cluster) Partition(t *testing.T, name string) {
	t.Helper()
	c.setLink(t, name, "down")
}

// Heal undoes Partition.
func (c *Cluster) Heal(t *testing.T, name string) {
	t.Helper()
	c.setLink(t, name, "up")
}

func (c *Cluster) setLink(t *testing.T, name, state string) {
	t.Helper()
	c.mu.Lock()
	n, known := c.boards[name]
	c.mu.Unlock()
	if !known {
		t.Fatalf("set the link of board %s: BoardNet has not made it", name)
	}
	if err := c.ns.ip(t.Context(), "link", "set", tap(n), state); err != nil {
		t.Fatalf("set the link of board %s: %v", name, err)
	}
}

// Link is a way to the API server that a test can make bad: its address is for
// boards, and is one that the API server's certificate is for. It ends with
// the test.
func (c *Cluster) Link(t *testing.T) *Link {
	t.Helper()
	listener, err := c.ns.listen(t.Context(), "tcp", netip.AddrPortFrom(hostAddress.Addr(), 0).String())
	if err != nil {
		t.Fatalf("make a link to the API server: %v", err)
	}
	l := NewLink(listener, func(ctx context.Context) (net.Conn, error) {
		return c.ns.dial(ctx, "tcp", netip.AddrPortFrom(hostAddress.Addr(), securePort).String())
	})
	t.Cleanup(l.Close)
	return l
}

// Seen listens beside the boards, on their way to the world, and answers whom
// it sees. It ends with the test; address is for boards.
func (c *Cluster) Seen(t *testing.T) (address string) {
	t.Helper()
	listener, err := c.ns.listen(t.Context(), "tcp", netip.AddrPortFrom(hostAddress.Addr(), 0).String())
	if err != nil {
		t.Fatalf("listen beside the boards: %v", err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // ends with the listener
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintln(w, host)
		}))
	}()
	return listener.Addr().String()
}

// Ask gets a URL of a board from beside it, or why there was no answer.
func (c *Cluster) Ask(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Insecure(nil).Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// Insecure is a connection to boards that does not judge their certificates,
// and shows cert, which may be nil. It follows no redirects.
func (c *Cluster) Insecure(cert *tls.Certificate) *http.Client {
	conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a board signs its own certificate
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: c.ns.dial, TLSClientConfig: conf, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
