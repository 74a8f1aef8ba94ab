package profile

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	for path, want := range map[string]string{
		"/debug/pprof/":                   "<html>",
		"/debug/pprof/cmdline":            "/",
		"/debug/pprof/symbol":             "num_symbols: ",
		"/debug/pprof/goroutine?debug=1":  "goroutine profile: ",
		"/debug/pprof/none":               "Unknown profile",
		"/debug/pprof/profile?seconds=1":  "\x1f\x8b", // gzip
		"/debug/pprof/trace?seconds=0.01": "go 1.",
	} {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %d %.40q, want %q", path, w.Code, w.Body.String(), want)
		}
	}
}
