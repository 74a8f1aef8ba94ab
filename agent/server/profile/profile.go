// Package profile serves the agent's profiles at /debug/pprof/. It is not part of
// package server because linking it also links the Go runtime's memory profiling,
// which costs memory even in an idle agent.
package profile

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// Handler returns the handler of /debug/pprof/ and the paths below it
// (InstallProfilingHandler in pkg/kubelet/server/server.go). A request for a profile
// or trace with a duration blocks for that duration.
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
		default:
			pprof.Index(w, r)
		}
	})
}
