package authz

import (
	"net/http"
	"path"
	"strings"
)

// subresources of a Node, in the order in which they are asked for: any of
// them will do. The finer ones come first, and proxy after them is the right
// to everything that has no other (pkg/kubelet/server/auth.go).
var (
	proxy      = []string{"proxy"}
	pods       = []string{"pods", "proxy"}
	healthz    = []string{"healthz", "proxy"}
	configz    = []string{"configz", "proxy"}
	stats      = []string{"stats"}
	metrics    = []string{"metrics"}
	logs       = []string{"log"} // as pods/log is named
	checkpoint = []string{"checkpoint"}
	statusz    = []string{"statusz"}
	flagz      = []string{"configz"} // flags are configuration; proxy does not do
)

// Subresources are those of the Node of which a request for a path needs one,
// in the order in which they are to be asked for. They must not be changed.
// The path is a request's URL.Path, which is decoded; what it means follows
// from its first part alone.
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

// Verb is the verb that a request needs. What runs a program in a container,
// or reaches into its network, needs create whatever its method is: a WebSocket
// begins with GET, and the right to get nodes/proxy is given to accounts that
// only read. Other requests need the verb of their method. A method that has
// none, HEAD among them, yields "", which only the verb * covers.
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

// firstPart is the first part of a clean path, by which requests are routed.
func firstPart(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// maxPath is how long a path may be, decoded: as long as one of a file, whose
// name /logs/ takes.
const maxPath = 4096

// clean is a path as http.ServeMux has it: it begins with a slash and has
// neither empty parts nor dots, and a slash at its end stays.
func clean(p string) string {
	c := path.Clean("/" + p)
	if c != "/" && strings.HasSuffix(p, "/") {
		c += "/"
	}
	return c
}
