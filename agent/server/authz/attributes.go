package authz

import (
	"net/http"
	"path"
	"strings"
)

// nodeSubresources are the subresources of a Node by the first element of a path, in the order
// in which they are reviewed: access to any of them is sufficient. The finer ones come
// first; proxy covers all other paths (pkg/kubelet/server/auth.go).
var nodeSubresources = map[string][]string{
	"pods":        {"pods", "proxy"},
	"runningpods": {"pods", "proxy"},
	"healthz":     {"healthz", "proxy"},
	"configz":     {"configz", "proxy"},
	"stats":       {"stats"},
	"metrics":     {"metrics"},
	"logs":        {"log"}, // named like pods/log
	"checkpoint":  {"checkpoint"},
	"statusz":     {"statusz"},
	"flagz":       {"configz"}, // flags are configuration; proxy is not sufficient
}

var proxy = []string{"proxy"}

// Subresources returns the subresources of the Node for a path, in the order in which
// to review them; a request requires access to one of them. The slice must not be
// changed. path is the decoded URL.Path of a request. Only its first element is used.
func Subresources(path string) []string {
	if all, ok := nodeSubresources[firstPart(path)]; ok {
		return all
	}
	return proxy
}

// verbs are the verbs that methods require.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
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
	return verbs[method]
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
