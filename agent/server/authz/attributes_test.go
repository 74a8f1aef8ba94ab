package authz

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// routes are the paths of the kubelet's API and the subresources that allow them.
var routes = []struct {
	path         string
	subresources []string
}{
	{"/healthz", []string{"healthz", "proxy"}},
	{"/healthz/ping", []string{"healthz", "proxy"}},
	{"/healthz/log", []string{"healthz", "proxy"}},
	{"/healthz/syncloop", []string{"healthz", "proxy"}},
	{"/pods", []string{"pods", "proxy"}},
	{"/pods/", []string{"pods", "proxy"}},
	{"/runningpods/", []string{"pods", "proxy"}},
	{"/configz", []string{"configz", "proxy"}},
	{"/stats/summary", []string{"stats"}},
	{"/stats/summary?only_cpu_and_memory=true", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/metrics/resource", []string{"metrics"}},
	{"/metrics/cadvisor", []string{"metrics"}},
	{"/metrics/probes", []string{"metrics"}},
	{"/metrics/slis", []string{"metrics"}},
	{"/logs/", []string{"log"}},
	{"/logs/pods/a/b/0.log", []string{"log"}},
	{"/checkpoint/ns/pod/ctr", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/containerLogs/ns/pod/ctr?follow=true&tailLines=1", []string{"proxy"}},
	{"/exec/ns/pod/ctr?command=sh", []string{"proxy"}},
	{"/exec/ns/pod/uid/ctr?command=sh", []string{"proxy"}},
	{"/attach/ns/pod/ctr", []string{"proxy"}},
	{"/run/ns/pod/ctr", []string{"proxy"}},
	{"/portForward/ns/pod", []string{"proxy"}},
	{"/debug/pprof/heap", []string{"proxy"}},
	{"/debug/flags/v", []string{"proxy"}},
	{"/", []string{"proxy"}},
	{"/nothing/here", []string{"proxy"}},
}

func TestSubresources(t *testing.T) {
	for _, tt := range routes {
		path, _, _ := strings.Cut(tt.path, "?")
		if diff := cmp.Diff(tt.subresources, Subresources(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	for path, want := range map[string]string{
		// What only looks like a path with a right of its own.
		"/podsx": "proxy", "/pod": "proxy", "/Pods": "proxy", "/runningPods/": "proxy", "/metricsx/resource": "proxy",
		"/api/pods": "proxy", "/exec/pods": "proxy", "": "proxy", "//": "proxy", "//metrics": "proxy", "/./metrics": "proxy",
		"/logs": "log", "/stats": "stats", "/checkpoint": "checkpoint", "/stats/": "stats", "/metrics/": "metrics",
		"/statusz/": "statusz", "/flagz/x": "configz",
	} {
		if got := Subresources(path); got[0] != want || len(got) != 1 {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestVerb(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
		"HEAD": "", "OPTIONS": "", "CONNECT": "", "TRACE": "", "get": "", "LIST": "", "": "",
	} {
		for _, path := range []string{"/pods", "/execs/a/b/c", "/containerLogs/exec/b/c", "/debug/pprof/heap", "/", ""} {
			if got := Verb(method, path); got != want {
				t.Errorf("%q of %q: %q, want %q", method, path, got, want)
			}
		}
		// A WebSocket to run a program begins with GET.
		for _, path := range []string{"/exec/ns/pod/ctr", "/exec", "/attach/ns/pod/uid/ctr", "/run/ns/pod/ctr", "/portForward/ns/pod"} {
			if got := Verb(method, path); got != "create" {
				t.Errorf("%q of %q: %q, want create", method, path, got)
			}
		}
	}
}

func TestClean(t *testing.T) {
	for path, want := range map[string]string{
		"": "/", "/": "/", "//": "/", "*": "/*", "pods": "/pods", "/pods": "/pods", "/pods/": "/pods/", "//pods": "/pods", "/pods//": "/pods/",
		"/a/../b": "/b", "/../../b/": "/b/", "/a/./b": "/a/b", "/a/..": "/", "/a/...": "/a/...", "/..a": "/..a", `/a\..\b`: `/a\..\b`,
	} {
		if got := clean(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// needs returns the subresources for a path like the kubelet: by the prefixes of its
// paths.
func needs(path string) []string {
	under := func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	var all []string
	switch {
	case under("/pods"), under("/runningpods"):
		all = append(all, "pods")
	case under("/healthz"):
		all = append(all, "healthz")
	case under("/configz"):
		all = append(all, "configz")
	}
	for prefix, right := range map[string]string{
		"/stats": "stats", "/metrics": "metrics", "/logs": "log", "/checkpoint": "checkpoint", "/statusz": "statusz", "/flagz": "configz",
	} {
		if under(prefix) {
			return append(all, right)
		}
	}
	return append(all, "proxy")
}

// served returns an http.ServeMux of the kubelet's paths that reports the matched route.
func served() http.Handler {
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"/healthz", "/healthz/", "/pods", "/pods/", "/runningpods/", "/configz", "/stats/", "/metrics", "/metrics/", "/logs/", "/checkpoint/",
		"/statusz", "/flagz", "/containerLogs/{ns}/{pod}/{ctr}", "/exec/", "/attach/", "/run/{ns}/{pod}/{ctr}", "/portForward/{ns}/{pod}", "/debug/pprof/",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Route", r.Pattern) })
	}
	return mux
}

// FuzzPath compares the reviewed subresources with the served route for arbitrary
// paths: no path may reach a route that requires another subresource.
func FuzzPath(f *testing.F) {
	for _, tt := range routes {
		f.Add("GET", tt.path)
	}
	for _, path := range []string{
		"//pods", "/pods/../exec/a/b/c", "/pods/%2e%2e/exec/a/b/c", "/pods%2f..%2fexec/a/b/c", "/%70ods", "/pods%2Fx", "/pods/..;/exec",
		"/pods/.%2e/exec/", "/exec%2f..%2fpods", "/metrics/./", "/logs//etc", "///", "/%2e", "/..", "*", "/pods\\..\\exec", "http://h/pods/../exec", "//h/x",
		"/" + strings.Repeat("a/", 3000), "/pods/%00", "/%c0%ae%c0%ae/exec", "/pods?/../exec", "/pods#/exec", "/.?#",
	} {
		f.Add("GET", path)
		f.Add("CONNECT", path)
		f.Add("POST", path)
	}
	next := served()
	f.Fuzz(func(t *testing.T, method, raw string) {
		at, err := url.ParseRequestURI(raw)
		if err != nil || method == "" {
			t.Skip()
		}
		if diff := cmp.Diff(needs(at.Path), Subresources(at.Path)); diff != "" && strings.HasPrefix(at.Path, "/") {
			t.Errorf("%q (-kubelet +got):\n%s", at.Path, diff)
		}
		var asked []string
		guard := guardBy(t, func(subresource string) { asked = append(asked, subresource) })
		guard.Next = next
		w := httptest.NewRecorder()
		guard.ServeHTTP(w, &http.Request{Method: method, URL: at, RequestURI: raw, Host: "h", Header: http.Header{}})
		switch {
		case len(asked) == 0: // not let through
			if w.Code == http.StatusTemporaryRedirect {
				to, err := url.Parse(w.Header().Get("Location"))
				if err != nil || to.Host != "" || to.Scheme != "" || to.Path != clean(at.Path) || to.RawQuery != strings.ReplaceAll(at.RawQuery, "#", "%23") {
					t.Errorf("%q redirects to %q, %v", raw, w.Header().Get("Location"), err)
				}
			} else if w.Code != http.StatusRequestURITooLong {
				t.Errorf("%q: %d without a right", raw, w.Code)
			}
		case at.Path != clean(at.Path) || len(at.Path) > maxPath:
			t.Errorf("%q was let through", raw)
		}
		if route := w.Header().Get("Route"); route != "" {
			want := needs(strings.TrimSuffix(route, "/"))
			if !slices.Equal(asked, want[:1]) { // it is granted
				t.Errorf("%s %q is served by %s, which needs %q: asked for %q", method, raw, route, want, asked)
			}
		}
	})
}
