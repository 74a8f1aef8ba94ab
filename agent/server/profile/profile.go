// Package profile serves the agent's profiles at /debug/pprof/. It is not part of
// package server because linking it also links the Go runtime's memory profiling,
// which uses memory even in an idle agent. DeferHeapProfile avoids most of that.
package profile

import (
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strings"
	"sync"
)

// heapRate is the runtime's default of one sampled allocation in 512 KiB.
const heapRate = 512 << 10

// deferred reports whether DeferHeapProfile has stopped the sampling of allocations.
var deferred bool

// DeferHeapProfile stops the sampling of allocations until a client requests a profile of the
// heap: each sampled call stack takes memory that the runtime never frees, up to 1.4 MiB for
// its hash table and some hundred bytes for each. GODEBUG with memprofilerate overrides it.
// It must be called before the process starts a goroutine.
func DeferHeapProfile() {
	if strings.Contains(os.Getenv("GODEBUG"), "memprofilerate=") {
		return
	}
	deferred = true
	runtime.MemProfileRate = 0
}

// sampleHeap starts the sampling of allocations if it is deferred.
var sampleHeap = sync.OnceFunc(func() {
	if deferred {
		runtime.MemProfileRate = heapRate
	}
})

// Handler returns the handler of /debug/pprof/ and the paths below it
// (InstallProfilingHandler in pkg/kubelet/server/server.go). A request for a profile
// or trace with a duration blocks for that duration. The first request for a profile of
// the heap starts the sampling that DeferHeapProfile stopped: the profile contains the
// allocations since then.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
		case "profile":
			pprof.Profile(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		case "cmdline":
			pprof.Cmdline(w, r)
		case "trace":
			pprof.Trace(w, r)
		case "heap", "allocs":
			sampleHeap()
			pprof.Index(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}
