package server

import (
	"net/http"
	"slices"
	"strings"
)

// family is the route of all paths with the same first element.
type family struct {
	// methods are the allowed methods, in the order of the Allow header; nil
	// allows every method.
	methods []string
	// least and most limit the number of path elements after the first. A negative
	// most means no limit.
	least, most int
	serve       func(w *paced, r *http.Request, parts []string)
}

var (
	get     = []string{http.MethodGet}
	post    = []string{http.MethodPost}
	getPost = []string{http.MethodGet, http.MethodPost}
)

// route dispatches a request by its path, which must be clean.
func (s *Server) route(w *paced, r *http.Request) {
	path := r.URL.Path
	if h, ok := s.exact[path]; ok {
		h.ServeHTTP(w, r)
		return
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	f, ok := s.rooted[first]
	if !ok {
		http.NotFound(w, r)
		return
	}
	var parts []string
	if rest = strings.TrimSuffix(rest, "/"); rest != "" {
		parts = strings.Split(rest, "/")
	}
	if len(parts) < f.least || f.most >= 0 && len(parts) > f.most {
		text(w, http.StatusNotFound, "404: Page Not Found")
		return
	}
	if f.methods != nil && !slices.Contains(f.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(f.methods, ", "))
		text(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
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
			exact[path] = s.metrics(path, write)
		}
	}
	if *s.config.Kubelet.EnableDebuggingHandlers {
		exact["/configz"] = http.HandlerFunc(s.configz)
		exact["/debug/flags/v"] = disabled("flags endpoint is disabled.")
	}
	return exact
}

// rootedRoutes returns the other routes. Without enableDebuggingHandlers, the debug
// paths report that they are disabled, whatever follows the first path element
// (InstallDebuggingDisabledHandlers).
func (s *Server) rootedRoutes() map[string]family {
	rooted := map[string]family{"pods": {methods: get, serve: s.pods}}
	if s.config.Summary != nil {
		rooted["stats"] = family{least: 1, most: 1, serve: s.stats}
	}
	if !*s.config.Kubelet.EnableDebuggingHandlers {
		off := family{most: -1, serve: handled(disabled("Debug endpoints are disabled."))}
		for _, first := range []string{"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs"} {
			rooted[first] = off
		}
		rooted["debug"] = family{least: 1, most: -1, serve: under("pprof", off.serve)}
		return rooted
	}
	rooted["runningpods"] = family{methods: get, serve: s.runningPods}
	rooted["containerLogs"] = family{methods: get, least: 3, most: 3, serve: s.containerLogs}
	if *s.config.Kubelet.EnableSystemLogHandler {
		rooted["logs"] = family{methods: get, most: -1, serve: s.systemLogs}
	} else {
		rooted["logs"] = family{most: -1, serve: handled(disabled("logs endpoint is disabled."))}
	}
	if s.config.Profiling != nil && *s.config.Kubelet.EnableProfilingHandler {
		rooted["debug"] = family{methods: get, least: 1, most: 2, serve: under("pprof", handled(s.config.Profiling))}
	} else {
		rooted["debug"] = family{least: 1, most: -1, serve: under("pprof", handled(disabled("profiling endpoint is disabled.")))}
	}
	if s.config.Streaming != nil {
		stream := handled(s.config.Streaming)
		rooted["exec"] = family{methods: getPost, least: 3, most: 4, serve: stream}
		rooted["attach"] = rooted["exec"]
		rooted["run"] = family{methods: post, least: 3, most: 4, serve: stream}
		rooted["portForward"] = family{methods: getPost, least: 2, most: 3, serve: stream}
	}
	return rooted
}

// handled adapts h to family.serve.
func handled(h http.Handler) func(*paced, *http.Request, []string) {
	return func(w *paced, r *http.Request, _ []string) { h.ServeHTTP(w, r) }
}

// under calls serve for paths whose next element is folder, and returns 404 for
// others.
func under(folder string, serve func(*paced, *http.Request, []string)) func(*paced, *http.Request, []string) {
	return func(w *paced, r *http.Request, parts []string) {
		if parts[0] != folder {
			http.NotFound(w, r)
			return
		}
		serve(w, r, parts)
	}
}

// disabled returns 405 with the kubelet's message for a disabled endpoint.
func disabled(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, message, http.StatusMethodNotAllowed)
	})
}
