package profile

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
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

// TestDeferHeapProfile shows that allocations are not sampled before a client requests a profile of
// the heap, that the next profile contains what is allocated then, and that GODEBUG has priority.
func TestDeferHeapProfile(t *testing.T) {
	if os.Getenv("PROFILE_CHILD") == "" {
		for _, debug := range []string{"", "memprofilerate=4096"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeferHeapProfile$")
			cmd.Env = append(os.Environ(), "PROFILE_CHILD=1", "GODEBUG="+debug)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("GODEBUG=%q: %v\n%s", debug, err, out)
			}
		}
		return
	}
	DeferHeapProfile()
	if strings.Contains(os.Getenv("GODEBUG"), "memprofilerate") {
		if runtime.MemProfileRate != 4096 {
			t.Errorf("MemProfileRate is %d, want 4096", runtime.MemProfileRate)
		}
		return
	}
	if runtime.MemProfileRate != 0 {
		t.Errorf("MemProfileRate is %d before a request", runtime.MemProfileRate)
	}
	heap(t)
	allocate()
	if got := heap(t); !strings.Contains(got, "profile.allocate") {
		t.Errorf("no allocations after the first request:\n%s", got)
	}
}

var kept [][]byte

//go:noinline
func allocate() {
	for range 64 {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func heap(t *testing.T) string {
	runtime.GC()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/debug/pprof/heap?debug=1&gc=1", nil))
	return w.Body.String()
}
