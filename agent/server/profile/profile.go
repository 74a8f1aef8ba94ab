// Package profile owns the agent's profiles over HTTP, as /debug/pprof/ has
// them. It is apart from package server because who links it links the
// runtime's sampling of memory too, which costs an idle agent some of its own.
package profile

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// Handler answers /debug/pprof/ and what is below (InstallProfilingHandler in
// pkg/kubelet/server/server.go). A profile of a time blocks for so long.
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
