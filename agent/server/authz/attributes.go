package authz

import (
	"net/http"
	"path"
	"strings"
)

// Subresources of a Node, in the order in which they are reviewed: access to any of
// them is sufficient. The finer ones come first; proxy covers all paths without a
// subresource of their own (pkg/kubelet/server/auth.go).
var (
	proxy      = []string{"proxy"}
	pods       = []string{"pods", "proxy"}
	healthz    = []string{"healthz", "proxy"}
	configz    = []string{"configz", "proxy"}
	stats      = []string{"stats"}
	metrics    = []string{"metrics"}
	logs       = []string{"log"} // named like pods/log
	checkpoint = []string{"checkpoint"}
	statusz    = []string{"statusz"}
	flagz      = []string{"configz"} // flags are configuration; proxy is not sufficient
)

// Subresources returns the subresources of the Node for a path, in the order in which
// to review them; a request requires access to one of them. The slice must not be
// changed. path is the decoded URL.Path of a request. Only its first element is used.
func Subresources(path string) []string {
	switch firstPart(path) {
	case "pods", "runningpods":
		return pods
	case "healthz":
		return healthz
	case "configz":
		return configz
	case "stats":
		return stats
	case "metrics":
		return metrics
	case "logs":
		return logs
	case "checkpoint":
		return checkpoint
	case "statusz":
		return statusz
	case "flagz":
		return flagz
	default:
		return proxy
	}
}

// Verb returns the verb that a request requires. Requests that run a program in a
// container or access its network require create, regardless of their method: a
// WebSocket begins with GET, and access to get nodes/proxy is granted to read-only
// accounts. Other requests require the verb of their method. For other methods,
// including HEAD, Verb returns "", which only the verb * covers.
func Verb(method, path string) string {
	switch firstPart(path) {
	case "exec", "attach", "run", "portForward":
		return "create"
	}
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// firstPart returns the first element of a clean path, by which requests are routed.
func firstPart(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// maxPath limits a decoded path in bytes. It is the kernel's PATH_MAX, because /logs/
// takes file names.
const maxPath = 4096

// clean returns a path in the canonical form of http.ServeMux: it begins with a slash,
// has no empty, "." or ".." elements, and keeps a trailing slash.
func clean(p string) string {
	c := path.Clean("/" + p)
	if c != "/" && strings.HasSuffix(p, "/") {
		c += "/"
	}
	return c
}
