package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
)

const plainText = "text/plain; charset=utf-8"

func TestRoutes(t *testing.T) {
	const (
		notFound = "404 page not found\n"
		noPage   = "404: Page Not Found"
		noMethod = "405: Method Not Allowed"
	)
	debugOff := func(b *board) { b.config.Kubelet.EnableDebuggingHandlers = yes(false) }
	type row struct {
		method, path string
		code         int
		text         string // all of it, or its beginning if it ends in …
		kind         string // Content-Type; "" is not looked at
		allow        string
	}
	for name, tt := range map[string]struct {
		set  func(*board)
		rows []row
	}{
		"as configured by default": {rows: []row{
			{"GET", "/pods", 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{…`, "application/json", ""},
			{"GET", "/pods/", 200, `{"kind":"PodList",…`, "application/json", ""},
			{"GET", "/pods/x", 404, noPage, plainText, ""},
			{"POST", "/pods", 405, noMethod, plainText, "GET"},
			{"HEAD", "/pods", 405, "", "", "GET"},
			{"GET", "/runningpods/", 200, `{"kind":"PodList",…`, "application/json", ""},
			{"GET", "/runningpods", 200, `{"kind":"PodList",…`, "application/json", ""},
			{"DELETE", "/runningpods/", 405, noMethod, plainText, "GET"},
			{"GET", "/healthz", 200, "ok", plainText, ""},
			{"POST", "/healthz", 200, "ok", plainText, ""},
			{"GET", "/healthz/ping", 200, "ok", plainText, ""},
			{"GET", "/healthz/syncloop", 200, "ok", plainText, ""},
			{"GET", "/healthz/log", 404, notFound, plainText, ""},
			{"GET", "/healthz/", 404, notFound, plainText, ""},
			{"GET", "/healthz?verbose", 200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n", plainText, ""},
			{"GET", "/healthz?verbose&exclude=syncloop&exclude=b&exclude=a", 200,
				"[+]ping ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nhealthz check passed\n", plainText, ""},
			{"GET", "/stats/summary", 200, `{"only":false}`, "application/json", ""},
			{"POST", "/stats/summary", 200, `{"only":false}`, "application/json", ""},
			{"GET", "/stats/summary/?only_cpu_and_memory=true", 200, `{"only":true}`, "application/json", ""},
			{"GET", "/stats/summary?only_cpu_and_memory=1", 200, `{"only":false}`, "application/json", ""},
			{"GET", "/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true", 200, `{"only":false}`, "application/json", ""},
			{"GET", "/stats/summary?%zz", 500, "Internal Error: parse form failed: …", plainText, ""},
			{"PUT", "/stats/summary", 405, noMethod, plainText, "GET, POST"},
			{"GET", "/stats/", 404, noPage, plainText, ""},
			{"GET", "/stats/container", 404, noPage, plainText, ""},
			{"GET", "/metrics", 200, "a 1\n", metrics.ContentType, ""},
			{"GET", "/metrics/resource", 200, "b 1\n", metrics.ContentType, ""},
			{"GET", "/metrics/cadvisor", 200, "c 1\n", metrics.ContentType, ""},
			{"GET", "/metrics/probes", 200, "d 1\n", metrics.ContentType, ""},
			{"POST", "/metrics", 200, "a 1\n", metrics.ContentType, ""},
			{"GET", "/metrics/", 404, notFound, plainText, ""},
			{"GET", "/metrics/slis", 404, notFound, plainText, ""},
			{"GET", "/configz", 200, `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1",…`, "application/json", ""},
			{"GET", "/logs/", 200, "<!doctype html>\n…", "text/html; charset=utf-8", ""},
			{"GET", "/logs", 301, "", "", ""},
			{"POST", "/logs/", 405, noMethod, plainText, "GET"},
			{"GET", "/debug/pprof/", 200, "profile /debug/pprof/", "", ""},
			{"GET", "/debug/pprof/heap", 200, "profile /debug/pprof/heap", "", ""},
			{"POST", "/debug/pprof/symbol", 405, noMethod, plainText, "GET"},
			{"GET", "/debug/flags/v", 405, "flags endpoint is disabled.\n", plainText, ""},
			{"PUT", "/debug/flags/v", 405, "flags endpoint is disabled.\n", plainText, ""},
			{"GET", "/debug/flags", 404, notFound, plainText, ""},
			{"POST", "/exec/default/web/app?command=sh", 200, "stream /exec/default/web/app", "", ""},
			{"GET", "/exec/default/web/uid/app", 200, "stream /exec/default/web/uid/app", "", ""},
			{"GET", "/exec/default/web", 404, noPage, plainText, ""},
			{"PUT", "/exec/default/web/app", 405, noMethod, plainText, "GET, POST"},
			{"POST", "/attach/default/web/app", 200, "stream /attach/default/web/app", "", ""},
			{"POST", "/run/default/web/app", 200, "stream /run/default/web/app", "", ""},
			{"GET", "/run/default/web/app", 405, noMethod, plainText, "POST"},
			{"POST", "/portForward/default/web", 200, "stream /portForward/default/web", "", ""},
			{"POST", "/portForward/default/web/uid/x", 404, noPage, plainText, ""},
			{"GET", "/containerLogs/default/web", 404, noPage, plainText, ""},
			{"POST", "/containerLogs/default/web/app", 405, noMethod, plainText, "GET"},
			{"POST", "/checkpoint/default/web/app", 404, notFound, plainText, ""},
			{"GET", "/statusz", 404, notFound, plainText, ""},
			{"GET", "/flagz", 404, notFound, plainText, ""},
			{"GET", "/", 404, notFound, plainText, ""},
			{"GET", "/nothing/here", 404, notFound, plainText, ""},
			{"OPTIONS", "/nothing", 404, notFound, plainText, ""},
		}},
		"no debugging": {set: debugOff, rows: []row{
			{"POST", "/run/default/web/app", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/exec/x", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/attach/", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/portForward/a/b", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/containerLogs/default/web/app", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/runningpods/", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/logs/x", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/debug/pprof/heap", 405, "Debug endpoints are disabled.\n", plainText, ""},
			{"GET", "/debug/flags/v", 404, notFound, plainText, ""},
			{"GET", "/configz", 404, notFound, plainText, ""},
			{"GET", "/pods", 200, `{"kind":"PodList",…`, "", ""},
			{"GET", "/stats/summary", 200, `{"only":false}`, "", ""},
			{"GET", "/metrics/resource", 200, "b 1\n", "", ""},
			{"GET", "/healthz", 200, "ok", "", ""},
		}},
		"no logs, no profiles": {set: func(b *board) {
			b.config.Kubelet.EnableSystemLogHandler, b.config.Kubelet.EnableProfilingHandler = yes(false), yes(false)
		}, rows: []row{
			{"GET", "/logs/x", 405, "logs endpoint is disabled.\n", plainText, ""},
			{"POST", "/logs/", 405, "logs endpoint is disabled.\n", plainText, ""},
			{"GET", "/debug/pprof/heap", 405, "profiling endpoint is disabled.\n", plainText, ""},
		}},
		"without cgroups": {set: func(b *board) {
			b.config.Summary, b.config.ResourceMetrics, b.config.CadvisorMetrics = nil, nil, nil
		}, rows: []row{
			{"GET", "/stats/summary", 404, notFound, plainText, ""},
			{"GET", "/metrics/resource", 404, notFound, plainText, ""},
			{"GET", "/metrics/cadvisor", 404, notFound, plainText, ""},
		}},
		"sick": {set: func(b *board) {
			b.config.Checks[0].Healthy = func(time.Time) error { return http.ErrHandlerTimeout }
			b.config.Runtime = &canned{err: http.ErrServerClosed}
		}, rows: []row{
			{"GET", "/healthz", 500, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n", plainText, ""},
			{"GET", "/healthz?exclude=syncloop", 200, "ok", plainText, ""},
			{"GET", "/healthz/syncloop", 500, "internal server error: " + http.ErrHandlerTimeout.Error() + "\n", plainText, ""},
			{"GET", "/runningpods/", 500, "list ready sandboxes: " + http.ErrServerClosed.Error(), plainText, ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			if tt.set != nil {
				tt.set(b)
			}
			b.start()
			admin := b.admin()
			for _, row := range tt.rows {
				got := b.ask(admin, row.method, row.path)
				begin, part := strings.CutSuffix(row.text, "…")
				if got.code != row.code || !strings.HasPrefix(got.text, begin) || !part && got.text != row.text {
					t.Errorf("%s %s: %d %q, want %d %q", row.method, row.path, got.code, got.text, row.code, row.text)
				}
				if kind := got.header.Get("Content-Type"); row.kind != "" && kind != row.kind {
					t.Errorf("%s %s: content type %q, want %q", row.method, row.path, kind, row.kind)
				}
				if allow := got.header.Get("Allow"); allow != row.allow {
					t.Errorf("%s %s: Allow %q, want %q", row.method, row.path, allow, row.allow)
				}
			}
		})
	}
}

func TestStatsByForm(t *testing.T) {
	b := newBoard(t)
	b.start()
	admin := b.admin()
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for body, want := range map[string]answer{
		"only_cpu_and_memory=true":     {code: 200, text: `{"only":true}`},
		"only_cpu_and_memory=false":    {code: 200, text: `{"only":false}`},
		strings.Repeat("x", maxBody+1): {code: 500, text: "Internal Error: parse form failed: http: request body too large"},
	} {
		response, err := b.send(t.Context(), admin, "POST", "/stats/summary", form, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.read(response); got.code != want.code || got.text != want.text {
			t.Errorf("%.30q: %d %q", body, got.code, got.text)
		}
	}
}

func TestConfigz(t *testing.T) {
	b := newBoard(t)
	b.config.Kubelet.StaticPodURLHeader = map[string][]string{"Authorization": {"secret"}}
	const target = "https://user:secret@host:1/a%2Fpods?token=secret"
	b.config.Kubelet.StaticPodURL = target
	b.start()
	got := b.ask(b.admin(), "GET", "/configz")
	if strings.Contains(got.text, "secret") {
		t.Errorf("a secret is told: %s", got.text)
	}
	config := decoded[map[string]map[string]any](t, got.text)["kubeletconfig"]
	if config["staticPodURL"] != "https://host:1/a%2Fpods" || config["maxPods"] != 110.0 || config["kind"] != "KubeletConfiguration" {
		t.Errorf("%v", config)
	}
	if b.config.Kubelet.Kind != "" || b.config.Kubelet.StaticPodURLHeader["Authorization"][0] != "secret" || b.config.Kubelet.StaticPodURL != target {
		t.Error("the configuration was changed")
	}
}
