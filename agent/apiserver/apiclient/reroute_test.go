package apiclient

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The server is where its URL or a connection has it.
func TestServerAddresses(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, podNamed("a")) })
	here := netip.MustParseAddr("127.0.0.1")
	for _, row := range []struct {
		name, host string
		connected  bool
		want       []netip.Addr
	}{
		{"its URL has it", "127.0.0.1", false, []netip.Addr{here}},
		{"nobody knows", "api.example.com", false, nil},
		{"a connection has it", "api.example.com", true, []netip.Addr{here}},
	} {
		c := clientOf(t, s, nil)
		if row.connected {
			if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
				t.Fatal(err)
			}
		}
		if c.transport.host != "127.0.0.1" {
			t.Errorf("the URL's host is %q", c.transport.host)
		}
		c.transport.host = row.host
		if got := c.Addresses(); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// A connection is left that the kernel would make from elsewhere now.
func TestReroute(t *testing.T) {
	for _, row := range []struct {
		name, source string
		conns        int32
	}{
		{"the same address", "127.0.0.1", 1},
		{"another address", "192.0.2.9", 2},
		{"another address of the same link", "::1", 1},
		{"no way", "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			if on := netip.MustParseAddr("::1"); row.source == "::1" && !share(on, on) {
				t.Skip("this host has no ::1")
			}
			s := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, podNamed("a")) })
			c := clientOf(t, s, nil)
			var conns atomic.Int32
			dial := c.transport.base.DialContext
			c.transport.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conns.Add(1)
				return dial(ctx, network, address)
			}
			c.transport.source = func(far net.Addr) netip.Addr {
				if sourceOf(far) != netip.MustParseAddr("127.0.0.1") {
					t.Errorf("the way to %v is from %v", far, sourceOf(far))
				}
				source, _ := netip.ParseAddr(row.source)
				return source
			}
			for range 2 {
				if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
					t.Fatal(err)
				}
				c.CloseStaleConnections()
			}
			if got := conns.Load(); got != row.conns {
				t.Errorf("%d connections, want %d", got, row.conns)
			}
		})
	}
}
