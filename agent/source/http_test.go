package source_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is one answer of a server.
type reply struct {
	status int
	body   string
	etag   string
	err    error // instead of an answer
	hangs  bool  // after the body, or at once if there is no status
}

// hanging is a body that does not end before its request does.
type hanging struct{ request *http.Request }

func (h hanging) Read([]byte) (int, error) {
	<-h.request.Context().Done()
	return 0, h.request.Context().Err()
}

func (p reply) to(r *http.Request) (*http.Response, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.status == 0 {
		return hanging{r}.none()
	}
	var body io.Reader = strings.NewReader(p.body)
	if p.hangs {
		body = io.MultiReader(body, hanging{r})
	}
	header := http.Header{}
	if p.etag != "" {
		header.Set("ETag", p.etag)
	}
	return &http.Response{StatusCode: p.status, Header: header, Body: io.NopCloser(body), Request: r}, nil
}

func (h hanging) none() (*http.Response, error) {
	_, err := h.Read(nil)
	return nil, err
}

func answer(status int, body string) reply { return reply{status: status, body: body} }

func fail(err error) reply { return reply{err: err} }

// ask runs an HTTP source until its transport calls over, and answers what
// the source handed over as "name=tag".
func ask(t *testing.T, config source.HTTPConfig, transport func(r *http.Request, over func()) (*http.Response, error), set func([]string)) []string {
	t.Helper()
	var lines logged
	log := lines.logger()
	events := event.NewRecorder(log)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the test is over")
	config.NodeName, config.Events = "n", events
	if config.Log == nil {
		config.Log = log
	}
	h, err := source.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	h.SetTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		return transport(r, func() {
			cancel(stop)
			<-r.Context().Done()
		})
	}))
	err = h.Run(ctx, func(_ context.Context, wanted source.PodSet) {
		names := []string{}
		for _, p := range wanted.Pods {
			_, tag, _ := strings.Cut(p.Spec.Containers[0].Image, ":")
			names = append(names, strings.TrimSuffix(p.Name, "-n")+"="+tag)
		}
		set(names)
	})
	if !errors.Is(err, stop) {
		t.Errorf("Run ended with %v", err)
	}
	if text := strings.Join(warnings(events), "\n") + lines.String(); strings.Contains(text, "hunter2") {
		t.Errorf("a secret in the events or in the log:\n%s", text)
	}
	// The recorder logs a repetition only after a while.
	if n := lines.events(); n != len(slices.Compact(slices.Sorted(slices.Values(warnings(events))))) {
		t.Errorf("%d log lines for the events %q", n, warnings(events))
	}
	return warnings(events)
}

// askEach lets the source see one answer in each period.
func askEach(t *testing.T, steps []reply) (sets [][]string, events []string) {
	t.Helper()
	sets = make([][]string, len(steps))
	n := 0
	begin := time.Now()
	events = ask(t, source.HTTPConfig{
		URL: "https://user:hunter2@example.com/pods?token=hunter2", Period: time.Minute, Header: http.Header{"X-Token": {"hunter2"}},
	}, func(r *http.Request, over func()) (*http.Response, error) {
		if n++; n > len(steps) {
			over()
			return nil, r.Context().Err()
		}
		return steps[n-1].to(r)
	}, func(pods []string) { sets[n-1] = pods })
	periods := time.Duration(len(steps))
	if took := time.Since(begin); took < periods*time.Minute || took > periods*77*time.Second {
		t.Errorf("%d periods took %s", periods, took)
	}
	return sets, events
}

func TestHTTP(t *testing.T) {
	a1, a2, b1 := manifestText("a", "1"), manifestText("a", "2"), manifestText("b", "1")
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	reset := func(port int) error {
		return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: errors.New("connection reset by peer")}
	}
	steps := func(s ...reply) []reply { return s }
	const none = `{"apiVersion":"v1","kind":"PodList","items":[]}`
	for _, tt := range []struct {
		name  string
		steps []reply
		want  [][]string
		warn  []string
	}{
		{"pods", steps(answer(200, a1), answer(200, a1), answer(200, a2), answer(200, a2+"---\n"+b1), answer(200, none), answer(200, none)),
			[][]string{{"a=1"}, nil, {"a=2"}, {"a=2", "b=1"}, {}, nil}, nil},
		{"no pods at first", steps(answer(200, none), answer(200, none)), [][]string{{}, nil}, nil},
		{"a server that is down at first", steps(fail(refused), fail(refused), answer(200, a1)), [][]string{nil, nil, {"a=1"}},
			[]string{"UnreadableManifest: https://example.com/pods: dial: connection refused; keeping its pods"}},
		{"a server that goes down", steps(answer(200, a1), fail(reset(1)), fail(reset(2)), fail(refused), answer(200, a1), fail(refused)),
			[][]string{{"a=1"}, nil, nil, nil, nil, nil},
			[]string{"read: connection reset by peer", "dial: connection refused", "dial: connection refused"}},
		{"bad answers", steps(answer(200, a1), answer(404, ""), answer(404, a2), answer(500, ""), answer(200, ""), answer(204, ""), answer(304, ""), answer(200, a2)),
			append(append([][]string{{"a=1"}}, make([][]string, 6)...), []string{"a=2"}),
			[]string{"404 Not Found", "500 Internal", "empty response", "204 No Content", "304 Not Modified"}},
		{"bad manifests", steps(answer(200, a1), answer(200, "<html>kind"), answer(200, "<html>kind"), answer(200, a1[:60]), answer(200, b1+"---\nkind: Secret\n")),
			[][]string{{"a=1"}, nil, nil, nil, {"b=1", "a=1"}},
			[]string{"InvalidManifest: https://example.com/pods: not an object", "InvalidManifest", "pods, document 2: apiVersion"}},
		{"a bad manifest at first", steps(answer(200, "<html>kind"), answer(200, none)), [][]string{nil, {}}, []string{"InvalidManifest"}},
		{"too much", steps(answer(200, a1), answer(200, strings.Repeat("#", 10<<20+1))), [][]string{{"a=1"}, nil}, []string{"larger than"}},
		{"a server without a name", steps(
			fail(&net.DNSError{Name: "example.com", IsNotFound: true}),
			fail(&net.DNSError{Name: "example.com", Err: "read udp 127.0.0.1:1->127.0.0.1:53: refused"}),
			fail(&net.DNSError{Name: "example.com", Err: "read udp 127.0.0.1:2->127.0.0.1:53: refused"})),
			make([][]string, 3), []string{"look up example.com: no such host", "look up example.com: no name server"}},
		{"a wrong clock", steps(
			fail(x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 1"}),
			fail(x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2"})),
			make([][]string, 2), []string{"the clock is wrong"}},
		{"a server that never answers", steps(answer(200, a1), reply{}, answer(200, a2)),
			[][]string{{"a=1"}, nil, {"a=2"}}, []string{"no complete response within 10s"}},
		{"a server that stops in the midst", steps(answer(200, a1), reply{status: 200, body: a2, hangs: true}, answer(200, a2)),
			[][]string{{"a=1"}, nil, {"a=2"}}, []string{"no complete response within 10s"}},
		{"a server that never stops", steps(answer(200, a1), reply{status: 200, body: strings.Repeat("#", 10<<20+1), hangs: true}),
			[][]string{{"a=1"}, nil}, []string{"larger than"}},
		{"a thousand bad documents", steps(answer(200, strings.Repeat("---\nkind\n", 1000))), [][]string{nil},
			append(slices.Repeat([]string{"not an object"}, 20), "pods: 980 more problems")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sets, events := askEach(t, tt.steps)
				if d := cmp.Diff(tt.want, sets); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
				if len(events) != len(tt.warn) {
					t.Fatalf("events %q, want %d", events, len(tt.warn))
				}
				for _, want := range tt.warn {
					if !strings.Contains(strings.Join(events, "\n"), want) {
						t.Errorf("no event with %q in %q", want, events)
					}
				}
			})
		})
	}
}

// TestHTTPPostponesCleanup checks that responses before the first complete one are logged once.
func TestHTTPPostponesCleanup(t *testing.T) {
	good, bad := manifestText("a", "1"), "<html>kind"
	for name, bodies := range map[string][]string{
		"part of the first": {good + "---\n" + bad, good + "---\n" + bad + "2", good, bad},
		"all of the first":  {bad, bad + "2", good},
		"none of the first": {good, bad},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines logged
				n := 0
				ask(t, source.HTTPConfig{URL: "https://user:hunter2@example.com/pods", Log: lines.logger()}, func(r *http.Request, over func()) (*http.Response, error) {
					if n++; n > len(bodies) {
						over()
						return nil, r.Context().Err()
					}
					return answer(200, bodies[n-1]).to(r)
				}, func([]string) {})
				want := 1
				if name == "none of the first" {
					want = 0
				}
				if text := lines.String(); strings.Count(text, "postpone pod cleanup") != want || strings.Count(text, "url=https://example.com/pods ") != want {
					t.Errorf("%d lines expected in log:\n%s", want, text)
				}
			})
		})
	}
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := ask(t, source.HTTPConfig{URL: "http://example.com"}, func(r *http.Request, over func()) (*http.Response, error) {
			over()
			return nil, r.Context().Err()
		}, nil)
		if len(events) != 0 {
			t.Errorf("events %q of a source that was told to end", events)
		}
	})
}

func TestHTTPAsksForWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a1, a2 := manifestText("a", "1"), manifestText("a", "2")
		steps := []struct {
			condition string // of the request
			reply     reply
			want      []string
		}{
			{"", reply{status: 200, body: a1, etag: "one"}, []string{"a=1"}},
			{"one", reply{status: 304}, nil},
			{"one", reply{status: 500}, nil},
			{"one", reply{status: 200, etag: "empty"}, nil},
			{"one", reply{status: 200, body: a2[:60], etag: "half"}, nil},
			{"half", reply{status: 304}, nil},
			{"half", reply{status: 200, body: a2, etag: "two"}, []string{"a=2"}},
			{"two", reply{status: 200, body: a1}, []string{"a=1"}},
			{"", reply{status: 304}, nil},
		}
		n := 0
		sets := make([][]string, len(steps))
		ask(t, source.HTTPConfig{URL: "http://example.com"}, func(r *http.Request, over func()) (*http.Response, error) {
			if n == len(steps) {
				over()
				return nil, r.Context().Err()
			}
			if got := r.Header.Get("If-None-Match"); got != steps[n].condition {
				t.Errorf("request %d: If-None-Match is %q, want %q", n, got, steps[n].condition)
			}
			n++
			return steps[n-1].reply.to(r)
		}, func(pods []string) { sets[n-1] = pods })
		for i, s := range steps {
			if d := cmp.Diff(s.want, sets[i]); d != "" {
				t.Errorf("set %d: -want +got:\n%s", i, d)
			}
		}
	})
}

// TestHTTPServer runs against real servers, to cover the behavior of Go's
// client.
func TestHTTPServer(t *testing.T) {
	var requests []*http.Request
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		io.WriteString(w, manifestText("other", "1"))
	}))
	defer other.Close()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/pods", func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		io.WriteString(w, manifestText("a", "1"))
	})
	mux.Handle("/here", http.RedirectHandler("/pods", http.StatusFound))
	mux.Handle("/there", http.RedirectHandler(other.URL, http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))

	for _, tt := range []struct {
		name   string
		url    string
		header http.Header
		paths  []string // of the requests with a manifest as the answer
		sets   [][]string
		warn   string
	}{
		{"twice", server.URL + "/pods", http.Header{"X-Token": {"hunter2"}}, []string{"/pods", "/pods"}, [][]string{{"a=1"}}, ""},
		{"moved on the host", server.URL + "/here", http.Header{"X-Token": {"hunter2"}}, []string{"/pods", "/pods"}, [][]string{{"a=1"}}, ""},
		{"moved to another host", server.URL + "/there?token=hunter2", nil, []string{"/", "/"}, [][]string{{"other=1"}}, ""},
		{"moved to another host, with a password", withUser(server.URL) + "/there", nil, nil, nil, "the request has headers or a user"},
		{"moved to another host, with headers", server.URL + "/there", http.Header{"X-Token": {"hunter2"}}, nil, nil, "the request has headers or a user"},
		{"moved for ever", server.URL + "/round", nil, nil, nil, "more than 5 redirects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests = nil
			var sets [][]string
			asked := 0
			events := ask(t, source.HTTPConfig{URL: tt.url, Header: tt.header, Period: 10 * time.Millisecond},
				func(r *http.Request, over func()) (*http.Response, error) {
					if r.Response == nil { // no redirect
						asked++
					}
					if asked > 2 {
						over()
						return nil, r.Context().Err()
					}
					return http.DefaultTransport.RoundTrip(r)
				}, func(pods []string) { sets = append(sets, pods) })
			var paths []string
			for _, r := range requests {
				paths = append(paths, r.URL.Path)
				if r.Referer() != "" {
					t.Errorf("the server was told of %q", r.Referer())
				}
				if want := tt.header.Get("X-Token"); r.Header.Get("X-Token") != want {
					t.Errorf("token %q, want %q", r.Header.Get("X-Token"), want)
				}
			}
			if d := cmp.Diff(tt.paths, paths); d != "" {
				t.Errorf("requests: -want +got:\n%s", d)
			}
			if d := cmp.Diff(tt.sets, sets); d != "" {
				t.Errorf("sets: -want +got:\n%s", d)
			}
			if w := strings.Join(events, "\n"); !strings.Contains(w, tt.warn) || (tt.warn == "") != (w == "") {
				t.Errorf("events %q, want %q", w, tt.warn)
			}
		})
	}
}

// TestRedirectFromHTTPS checks that a redirect from https to http is not
// followed, even without headers: anyone on the network path could respond with
// any pods.
func TestRedirectFromHTTPS(t *testing.T) {
	for _, tt := range []struct {
		name, url, to string
		followed      bool
	}{
		{"the same host", "https://a.example/pods", "http://a.example/pods", false},
		{"another host", "https://a.example/pods", "http://b.example/pods", false},
		{"by way of https", "https://a.example/first", "http://a.example/pods", false},
		{"another host with https", "https://a.example/pods", "https://b.example/pods", true},
		{"http from the start", "http://a.example/pods", "http://b.example/pods", true},
		{"http to https", "http://a.example/pods", "https://b.example/pods", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			sets, rounds := 0, 0
			events := ask(t, source.HTTPConfig{URL: tt.url, Period: 10 * time.Millisecond},
				func(r *http.Request, over func()) (*http.Response, error) {
					if r.Response == nil {
						if rounds++; rounds > 2 {
							over()
							return nil, r.Context().Err()
						}
					}
					asked = append(asked, r.URL.String())
					w := httptest.NewRecorder()
					switch {
					case r.URL.Path == "/first":
						http.Redirect(w, r, "https://a.example/second", http.StatusFound)
					case r.URL.String() == tt.url || r.URL.Path == "/second":
						http.Redirect(w, r, tt.to, http.StatusFound)
					default:
						io.WriteString(w, manifestText("a", "1"))
					}
					answer := w.Result()
					answer.Request = r
					return answer, nil
				}, func([]string) { sets++ })
			if got := slices.Contains(asked, tt.to); got != tt.followed || (sets > 0) != tt.followed {
				t.Errorf("requests %q, %d sets of pods", asked, sets)
			}
			if w := strings.Join(events, "\n"); strings.Contains(w, "redirect from https") == tt.followed {
				t.Errorf("events %q", w)
			}
		})
	}
}

// withUser is a URL with a user and a password.
func withUser(url string) string {
	return strings.Replace(url, "://", "://user:hunter2@", 1)
}

func TestNewHTTPRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, url := range []string{"", "example.com/pods", "ftp://example.com", "http:///pods", "http://user:hunter2@exa mple", "://hunter2"} {
		_, err := source.NewHTTP(source.HTTPConfig{URL: url, NodeName: "n", Log: log, Events: event.NewRecorder(log)})
		if err == nil {
			t.Errorf("accepted %q", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret in the error %q", err)
		}
	}
}
