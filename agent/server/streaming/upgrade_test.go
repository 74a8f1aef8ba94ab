package streaming

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpgradeOf(t *testing.T) {
	const bearer = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
	for name, tt := range map[string]struct {
		in, want http.Header // want is nil for a refusal
	}{
		"SPDY": {
			in:   http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}},
		},
		"credentials and what else a client has": {
			in: http.Header{
				"Connection": {"keep-alive, upgrade"}, "Upgrade": {"spdy/3.1"},
				"Authorization": {"Bearer x"}, "Cookie": {"a=b"}, "Proxy-Authorization": {"x"}, "X-Remote-User": {"root"},
				"X-Forwarded-For": {"10.0.0.1"}, "Impersonate-User": {"x"}, "Origin": {"https://x"}, "User-Agent": {"kubectl"},
				"Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
			},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
		},
		"WebSocket": {
			in: http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"WebSocket"}, "Sec-Websocket-Key": {"a2V5"}, "Sec-Websocket-Version": {"13"},
				"Sec-Websocket-Extensions": {"permessage-deflate"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io, v4.channel.k8s.io"},
			},
			want: http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"a2V5"}, "Sec-Websocket-Version": {"13"},
				"Sec-Websocket-Extensions": {"permessage-deflate"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io, v4.channel.k8s.io"},
			},
		},
		"a token among the protocols": {
			in:   http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io," + bearer, strings.ToUpper(bearer)}},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"}},
		},
		"a token alone": {
			in:   http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {bearer}},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
		},
		"no upgrade":         {in: http.Header{}},
		"no connection":      {in: http.Header{"Upgrade": {"SPDY/3.1"}}},
		"other protocol":     {in: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}},
		"two protocols":      {in: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1", "websocket"}}},
		"two in one":         {in: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1, websocket"}}},
		"a word in the word": {in: http.Header{"Connection": {"upgraded"}, "Upgrade": {"SPDY/3.1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/exec/a/b/c", nil)
			r.Header = tt.in
			up, err := upgradeOf(r)
			if tt.want == nil {
				if err == nil {
					t.Errorf("it is passed on as %v", up.header)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, up.header); diff != "" {
				t.Errorf("for the runtime (-want +got):\n%s", diff)
			}
		})
	}
	spdy := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	for name, change := range map[string]func(*http.Request){
		"HTTP/1.0": func(r *http.Request) { r.ProtoMinor = 0 },
		"HTTP/2":   func(r *http.Request) { r.ProtoMajor = 2 },
		"a body":   func(r *http.Request) { r.ContentLength = 3 },
		"chunks":   func(r *http.Request) { r.ContentLength = -1 },
	} {
		r := httptest.NewRequest(http.MethodPost, "/exec/a/b/c", nil)
		r.Header = spdy
		if change(r); name == "HTTP/1.0" {
			r.Proto = name
		}
		if _, err := upgradeOf(r); err == nil {
			t.Errorf("%s is upgraded", name)
		}
	}
}

func TestGranted(t *testing.T) {
	spdy := &upgrade{}
	in := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}, "Set-Cookie": {"a=b"}, "Server": {"x"}}
	want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	got, ok := spdy.granted(in)
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("granted is %v (-want +got):\n%s", ok, diff)
	}
	for name, in := range map[string]http.Header{
		"other":         {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
		"none":          {"Connection": {"Upgrade"}},
		"no connection": {"Upgrade": {"SPDY/3.1"}},
	} {
		if _, ok := spdy.granted(in); ok {
			t.Errorf("%s: granted", name)
		}
	}
}
