package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/authn"
)

// FuzzRequest sends arbitrary requests: none may panic, leave the log directory, reach
// a stream that its path does not name, or return a code that the server does not use.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{
		"/pods", "/runningpods/", "/healthz?verbose&exclude=a", "/stats/summary?only_cpu_and_memory=true", "/metrics/cadvisor", "/configz",
		"/containerLogs/default/web/app?tailLines=1&timestamps=true&limitBytes=9&sinceSeconds=1&stream=Stderr", "/containerLogs/default/web/app?previous=1",
		"/containerLogs/default/web/app?sinceTime=2026-01-02T03:04:05Z", "/containerLogs/../pods", "/containerLogs/a/b%2Fc",
		"/logs/", "/logs/messages", "/logs/outside", "/logs/etc/passwd", "/logs/%2e%2e/secret", "/logs//messages", "/logs/messages%00", "/logs/pipe", "/logs/..%2f",
		"/exec/default/web/app?command=sh", "/exec/default/web/uid/app", "/run/a/b/c", "/portForward/a/b", "/attach/a/b/c",
		"/debug/pprof/heap?seconds=1", "/debug/flags/v", "/checkpoint/a/b/c", "/", "*", "//x", "/exec%2fa/b/c/d", "/%65xec/a/b/c",
	} {
		f.Add("GET", path)
		f.Add("POST", path)
	}
	f.Add("HEAD", "/pods")
	f.Add("CONNECT", "/exec/a/b/c")
	b := newBoard(f)
	logTree(f, b.config.SystemLogs)
	b.logged("web-app", second1+" stdout F one\n")
	b.trust(authn.Config{Anonymous: true})
	b.allow(kubelet.KubeletAuthorizationModeAlwaysAllow)
	codes := map[int]bool{200: true, 206: true, 301: true, 307: true, 400: true, 403: true, 404: true, 405: true, 414: true, 422: true, 500: true}
	s := b.build()
	f.Fuzz(func(t *testing.T, method, raw string) {
		at, err := url.ParseRequestURI(raw)
		if err != nil || method == "" || strings.Contains(at.RawQuery, "follow") {
			t.Skip()
		}
		w := httptest.NewRecorder()
		s.guard.ServeHTTP(w, &http.Request{Method: method, URL: at, RequestURI: raw, Host: "h", Header: http.Header{}, Body: http.NoBody})
		if !codes[w.Code] {
			t.Errorf("%s %q: %d", method, raw, w.Code)
		}
		body := w.Body.String()
		if strings.HasPrefix(body, "secret") || strings.Contains(body, "root:") {
			t.Errorf("%s %q leaves the folder: %q", method, raw, body)
		}
		if path, ok := strings.CutPrefix(body, "stream "); ok {
			if method != "GET" && method != "POST" || path != at.Path {
				t.Errorf("%s %q reaches the stream %q", method, raw, path)
			}
			first, _, _ := strings.Cut(path[1:], "/")
			if first != "exec" && first != "attach" && first != "run" && first != "portForward" {
				t.Errorf("%s %q reaches the stream %q", method, raw, path)
			}
		}
		if w.Code == 405 && w.Header().Get("Allow") == "" && !strings.HasSuffix(body, "is disabled.\n") {
			t.Errorf("%s %q: 405 without Allow: %q", method, raw, body)
		}
		if len(s.slots.requests)+len(s.slots.snapshots)+len(s.slots.followed) != 0 {
			t.Errorf("%s %q: a place was not given back", method, raw)
		}
	})
}
