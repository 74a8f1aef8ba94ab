package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/server/local"
)

// route is the route of all paths with the same first element.
type route struct {
	// methods are the allowed methods, in the order of the Allow header; nil
	// allows every method.
	methods []string
	// minParts and maxParts limit the number of path elements after the first. A
	// negative maxParts means no limit.
	minParts, maxParts int
	serve              func(w *deadlineWriter, r *http.Request, parts []string)
}

var (
	get     = []string{http.MethodGet}
	post    = []string{http.MethodPost}
	getPost = []string{http.MethodGet, http.MethodPost}
)

// route dispatches a request by its path, which must be clean.
func (s *Server) route(w *deadlineWriter, r *http.Request) {
	path := r.URL.Path
	if h, ok := s.exactPaths[path]; ok {
		h.ServeHTTP(w, r)
		return
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	f, ok := s.prefixRoutes[first]
	if !ok {
		http.NotFound(w, r)
		return
	}
	var parts []string
	if rest = strings.TrimSuffix(rest, "/"); rest != "" {
		parts = strings.Split(rest, "/")
	}
	if len(parts) < f.minParts || f.maxParts >= 0 && len(parts) > f.maxParts {
		local.WriteText(w, http.StatusNotFound, "404: Page Not Found")
		return
	}
	if f.methods != nil && !slices.Contains(f.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(f.methods, ", "))
		local.WriteText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
		return
	}
	f.serve(w, r, parts)
}

// exactRoutes returns the handlers of the paths that the kubelet serves for every
// method and without a trailing slash.
func (s *Server) exactRoutes() map[string]http.Handler {
	exact := map[string]http.Handler{}
	s.addHealthz(exact)
	for path, write := range map[string]Text{
		"/metrics": s.config.Metrics, "/metrics/resource": s.config.ResourceMetrics,
		"/metrics/cadvisor": s.config.CadvisorMetrics, "/metrics/probes": s.config.ProbeMetrics,
	} {
		if write != nil {
			exact[path] = s.metrics(write)
		}
	}
	if *s.config.Kubelet.EnableDebuggingHandlers {
		exact["/configz"] = http.HandlerFunc(s.configz)
		exact["/debug/flags/v"] = disabledHandler("flags endpoint is disabled.")
	}
	return exact
}

// rootedRoutes returns the other routes. Without enableDebuggingHandlers, the debug
// paths report that they are disabled, whatever follows the first path element
// (InstallDebuggingDisabledHandlers).
func (s *Server) rootedRoutes() map[string]route {
	rooted := map[string]route{"pods": {methods: get, serve: s.pods}}
	if s.config.Summary != nil {
		rooted["stats"] = route{minParts: 1, maxParts: 1, serve: s.stats}
	}
	if !*s.config.Kubelet.EnableDebuggingHandlers {
		off := route{maxParts: -1, serve: handled(disabledHandler("Debug endpoints are disabled."))}
		for _, first := range []string{"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs"} {
			rooted[first] = off
		}
		rooted["debug"] = route{minParts: 1, maxParts: -1, serve: under("pprof", off.serve)}
		return rooted
	}
	rooted["runningpods"] = route{methods: get, serve: s.runningPods}
	rooted["containerLogs"] = route{methods: get, minParts: 3, maxParts: 3, serve: s.containerLogs}
	if *s.config.Kubelet.EnableSystemLogHandler {
		rooted["logs"] = route{methods: get, maxParts: -1, serve: s.systemLogs}
	} else {
		rooted["logs"] = route{maxParts: -1, serve: handled(disabledHandler("logs endpoint is disabled."))}
	}
	if *s.config.Kubelet.EnableProfilingHandler {
		rooted["debug"] = route{methods: get, minParts: 1, maxParts: 2, serve: under("pprof", handled(s.config.Profiling))}
	} else {
		rooted["debug"] = route{minParts: 1, maxParts: -1, serve: under("pprof", handled(disabledHandler("profiling endpoint is disabled.")))}
	}
	stream := handled(s.config.Streaming)
	rooted["exec"] = route{methods: getPost, minParts: 3, maxParts: 4, serve: stream}
	rooted["attach"] = rooted["exec"]
	rooted["run"] = route{methods: post, minParts: 3, maxParts: 4, serve: stream}
	rooted["portForward"] = route{methods: getPost, minParts: 2, maxParts: 3, serve: stream}
	return rooted
}

// handled adapts h to route.serve.
func handled(h http.Handler) func(*deadlineWriter, *http.Request, []string) {
	return func(w *deadlineWriter, r *http.Request, _ []string) { h.ServeHTTP(w, r) }
}

// under calls serve for paths whose next element is folder, and returns 404 for
// others.
func under(folder string, serve func(*deadlineWriter, *http.Request, []string)) func(*deadlineWriter, *http.Request, []string) {
	return func(w *deadlineWriter, r *http.Request, parts []string) {
		if parts[0] != folder {
			http.NotFound(w, r)
			return
		}
		serve(w, r, parts)
	}
}

// disabledHandler returns 405 with the kubelet's message for a disabled endpoint.
func disabledHandler(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, message, http.StatusMethodNotAllowed)
	})
}
