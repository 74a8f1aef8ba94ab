package handler

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestRequest checks what a manifest's request looks like.
func TestRequest(t *testing.T) {
	kube := http.Header{"User-Agent": {"kube-probe/1.36"}, "Accept": {"*/*"}}
	named := &v1.Container{Name: "web", Ports: []v1.ContainerPort{{Name: "admin", ContainerPort: 9000}}}
	cases := []struct {
		name    string
		action  v1.HTTPGetAction
		ip      string
		url     string
		host    string
		headers http.Header
	}{
		{"bare", v1.HTTPGetAction{Port: intstr.FromInt(80)}, "10.0.0.7", "http://10.0.0.7:80", "", kube},
		{"path", v1.HTTPGetAction{Port: intstr.FromInt(80), Path: "/a?b=c#d"}, "10.0.0.7", "http://10.0.0.7:80/a?b=c#d", "", kube},
		{"path without slash", v1.HTTPGetAction{Port: intstr.FromInt(80), Path: "a"}, "10.0.0.7", "http://10.0.0.7:80/a", "", kube},
		{"path that is no URL", v1.HTTPGetAction{Port: intstr.FromInt(80), Path: "/%zz"}, "10.0.0.7", "http://10.0.0.7:80/%25zz", "", kube},
		{"IPv6", v1.HTTPGetAction{Port: intstr.FromInt(80), Path: "/"}, "fd00::7", "http://[fd00::7]:80/", "", kube},
		{"host and scheme", v1.HTTPGetAction{Port: intstr.FromInt(443), Host: "example.test", Scheme: v1.URISchemeHTTPS}, "10.0.0.7", "https://example.test:443", "", kube},
		{"named port", v1.HTTPGetAction{Port: intstr.FromString("admin")}, "10.0.0.7", "http://10.0.0.7:9000", "", kube},
		{
			"headers",
			v1.HTTPGetAction{Port: intstr.FromInt(80), HTTPHeaders: []v1.HTTPHeader{
				{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "host", Value: "web.test"},
				{Name: "user-agent", Value: "me"}, {Name: "accept", Value: ""},
			}},
			"10.0.0.7", "http://10.0.0.7:80", "web.test",
			http.Header{"X-A": {"1", "2"}, "User-Agent": {"me"}, "Host": {"web.test"}},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			req, err := newRequest(t.Context(), &tc.action, &Target{Container: named, IP: tc.ip}, "probe")
			if err != nil {
				t.Fatal(err)
			}
			if req.URL.String() != tc.url || req.Host != tc.host {
				t.Errorf("request to %q of host %q, want %q of %q", req.URL, req.Host, tc.url, tc.host)
			}
			if diff := cmp.Diff(tc.headers, req.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// pages is a server with one page for each case of TestProbeHTTP.
func pages() http.Handler {
	mux := http.NewServeMux()
	for _, code := range []int{200, 204, 304, 400, 404, 500} {
		mux.HandleFunc(fmt.Sprintf("/%d", code), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			if code == 500 {
				_, _ = io.WriteString(w, "a secret")
			}
		})
	}
	mux.Handle("/local", http.RedirectHandler("/500", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://example.test/x", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20)))
	})
	mux.HandleFunc("/big-away", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://example.test/")
		w.WriteHeader(http.StatusFound)
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20)))
	})
	mux.HandleFunc("/big-header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	})
	mux.Handle("/to-agent", http.RedirectHandler("/agent", http.StatusFound))
	mux.HandleFunc("/agent", func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "kube-probe/1.36" || r.Host != "web.test" || !r.Close && r.ProtoMajor == 1 {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	return mux
}

// TestProbeHTTP checks what counts as success, over HTTP and HTTPS.
func TestProbeHTTP(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	r := New(nil)
	away := "Probe terminated redirects, Response body: "
	cases := []struct {
		path   string
		status Status
		output string // a part of it
	}{
		{"/200", Success, ""},
		{"/204", Success, ""},
		{"/304", Warning, away},
		{"/400", Failure, "HTTP probe failed with statuscode: 400"},
		{"/404", Failure, "HTTP probe failed with statuscode: 404"},
		{"/500", Failure, "HTTP probe failed with statuscode: 500"},
		{"/local", Failure, "HTTP probe failed with statuscode: 500"},
		{"/away", Warning, away + `<a href="http://example.test/x">Found</a>.`},
		{"/round", Failure, "stopped after 10 redirects"},
		{"/big", Success, ""},
		{"/big-away", Warning, away},
		{"/big-header", Failure, "server response headers exceeded"},
		{"/agent", Success, ""},
		{"/to-agent", Success, ""}, // the Host header goes along
	}
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{"HTTP": httptest.NewServer, "HTTPS": httptest.NewTLSServer} {
		host, port := serve(t, pages(), start)
		for _, tc := range cases {
			t.Run(scheme+tc.path, func(t *testing.T) {
				h := get(port, tc.path, v1.HTTPHeader{Name: "Host", Value: "web.test"})
				h.HTTPGet.Scheme = v1.URIScheme(scheme)
				got, err := r.Probe(t.Context(), h, Target{IP: host, Container: &v1.Container{}}, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if got.Status != tc.status || !strings.Contains(got.Output, tc.output) {
					t.Errorf("got %v %q, want %v %q", got.Status, got.Output, tc.status, tc.output)
				}
				if strings.Contains(got.Output, "secret") || len(got.Output) > maxOutput+len(away) {
					t.Errorf("the output has what it should not, or %d bytes", len(got.Output))
				}
			})
		}
	}
	t.Run("broken body", func(t *testing.T) {
		host, port := serve(t, pages(), httptest.NewServer)
		got, err := r.Probe(t.Context(), get(port, "/broken"), Target{IP: host, Container: &v1.Container{}}, 10*time.Second)
		if err == nil || got.Status != Failure {
			t.Errorf("got %v and %v, want a failure that does not count", got.Status, err)
		}
	})
}

// The body of a redirect is reported if the pod answered, but not if the manifest
// sets host: an event would show what that host answers to the node.
func TestRedirectBodyOfAnotherHost(t *testing.T) {
	const secret = "of the node's loopback"
	host, port := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://example.test/")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, secret)
	}), httptest.NewServer)
	r := New(nil)
	h := get(port, "/")
	for _, named := range []string{"", host} {
		h.HTTPGet.Host = named
		got, err := r.Probe(t.Context(), h, Target{IP: host, Container: &v1.Container{}}, 10*time.Second)
		if err != nil || got.Status != Warning || strings.Contains(got.Output, secret) != (named == "") {
			t.Errorf("host %q: got %v %q, %v", named, got.Status, got.Output, err)
		}
	}
}

// TestProbeHTTPHung checks the time limit, in virtual time.
func TestProbeHTTPHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dialing(nil, silent(t))
		begun := time.Now()
		got, err := r.Probe(t.Context(), get(80, "/"), local(), 3*time.Second)
		if err != nil || got.Status != Failure {
			t.Errorf("got %v and %v", got.Status, err)
		}
		// net/http may add "(Client.Timeout exceeded while awaiting headers)".
		want := `Get "http://127.0.0.1:80/": context deadline exceeded`
		if !strings.HasPrefix(got.Output, want) || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %q, want %q", time.Since(begun), got.Output, want)
		}
	})
}

// TestProbeHTTPRefused checks a port on which nobody listens.
func TestProbeHTTPRefused(t *testing.T) {
	got, err := New(nil).Probe(t.Context(), get(closedPort(t), "/"), local(), time.Minute)
	if err != nil || got.Status != Failure || !strings.Contains(got.Output, "connection refused") {
		t.Errorf("got %v %q and %v", got.Status, got.Output, err)
	}
}

// FuzzRequest checks that no manifest can crash the making of a request, and
// that it goes where the manifest says.
func FuzzRequest(f *testing.F) {
	f.Add("/x", "", "a", "b", "80")
	f.Add("//evil.test/x", "example.test", "Host", "h\r\n", "99999")
	f.Add("http://evil.test/x?%", "[::1", "", "\x00", "admin")
	f.Fuzz(func(t *testing.T, path, host, name, value, port string) {
		a := &v1.HTTPGetAction{Path: path, Host: host, Port: intstr.FromString(port), HTTPHeaders: []v1.HTTPHeader{{Name: name, Value: value}}}
		req, err := newRequest(t.Context(), a, &Target{Container: &v1.Container{}, IP: "10.0.0.7"}, "probe")
		if err != nil {
			return
		}
		if host == "" && req.URL.Hostname() != "10.0.0.7" {
			t.Errorf("path %q leads to %q", path, req.URL.Host)
		}
	})
}

// A server may send little over HTTP/2 before the probe has read it.
func TestProbeHTTP2SendsLittleAhead(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan struct{})
	host, port := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		block := make([]byte, 4<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			sent.Add(int64(len(block)))
		}
	}), func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		return s
	})
	r := New(nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/", host, port), nil)
	if err != nil {
		t.Fatal(err)
	}
	// A reader that reads nothing is the slowest there is.
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != 2 {
		t.Fatalf("the server speaks %s", resp.Proto)
	}
	for before, same := int64(-1), 0; same < 20; same++ { // until nothing more comes
		time.Sleep(5 * time.Millisecond)
		if now := sent.Load(); now != before {
			before, same = now, 0
		}
	}
	total := sent.Load()
	_ = resp.Body.Close()
	<-ended
	if total > 4*maxReceive {
		t.Errorf("%d KiB were sent to a reader that took nothing", total>>10)
	}
}
