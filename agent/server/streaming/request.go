package streaming

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a request. The API server forwards the URL that it receives, and accepts
// URLs of up to 1 MiB.
const (
	maxQuery = 256 << 10 // bytes, escaped
	maxName  = 253       // bytes of a name or a UID
	maxPorts = 128
)

// verb is the first element of a path.
type verb string

const (
	verbExec        verb = "exec"
	verbAttach      verb = "attach"
	verbRun         verb = "run"
	verbPortForward verb = "portForward"
)

// request is a parsed path and query.
type request struct {
	verb verb
	name Name

	cmd                        []string // exec, run
	stdin, stdout, stderr, tty bool     // exec, attach
	ports                      []int32  // port-forward over WebSocket
}

// parsePath parses /VERB/NAMESPACE/POD[/UID]/CONTAINER, without the container for
// port-forward. An invalid name is a 404.
func parsePath(method, path string) (request, error) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	asked := request{verb: verb(first)}
	methods := "GET, POST"
	switch asked.verb {
	case verbExec, verbAttach, verbPortForward:
	case verbRun:
		methods = "POST"
	default:
		return request{}, notFound("no such path")
	}
	if method != http.MethodPost && (method != http.MethodGet || asked.verb == verbRun) {
		return asked, &httpError{
			code:   http.StatusMethodNotAllowed,
			header: http.Header{"Allow": {methods}},
			text:   fmt.Sprintf("/%s only allows %s", asked.verb, methods),
		}
	}
	shape := fmt.Sprintf("must be /%s/NAMESPACE/POD[/UID]", asked.verb)
	if asked.verb != verbPortForward {
		shape += "/CONTAINER"
	}
	words := strings.Split(rest, "/")
	if slices.ContainsFunc(words, func(word string) bool { return !isName(word) }) {
		return asked, notFound("invalid name in path: " + shape)
	}
	if asked.verb != verbPortForward {
		asked.name.Container = words[len(words)-1]
		words = words[:len(words)-1]
	}
	switch len(words) {
	case 2:
	case 3:
		asked.name.UID = words[2]
	default:
		return asked, notFound("wrong number of path elements: " + shape)
	}
	asked.name.Namespace, asked.name.Pod = words[0], words[1]
	return asked, nil
}

func notFound(text string) error { return &httpError{code: http.StatusNotFound, text: text} }
func invalid(text string) error  { return &httpError{code: http.StatusBadRequest, text: text} }

// isName reports whether s can be a name or a UID. It accepts all that the API server
// accepts, and more.
func isName(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '.' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

// parseQuery parses the query parameters of the request's verb. It ignores others,
// like the kubelet.
func (asked *request) parseQuery(raw string, webSocket bool) error {
	if len(raw) > maxQuery {
		return &httpError{code: http.StatusRequestURITooLong, text: fmt.Sprintf("query of %d bytes exceeds %d: copy a long script into the container", len(raw), maxQuery)}
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return invalid(fmt.Sprintf("parse query: %v", err))
	}
	switch asked.verb {
	case verbExec:
		asked.cmd = query["command"]
		if err := checkCommand(asked.cmd, "command"); err != nil {
			return err
		}
		return asked.parseStreams(query)
	case verbAttach:
		return asked.parseStreams(query)
	case verbRun:
		asked.cmd = strings.Split(query.Get("cmd"), " ")
		return checkCommand(asked.cmd, "cmd")
	case verbPortForward:
		if webSocket {
			asked.ports, err = parsePorts(query["port"])
		}
	}
	return err
}

// checkCommand rejects commands that no runtime can run: CRI requires UTF-8, and the
// kernel strings without NUL bytes.
func checkCommand(cmd []string, parameter string) error {
	if len(cmd) == 0 || cmd[0] == "" {
		return invalid(fmt.Sprintf("no command: set the parameter %q", parameter))
	}
	for _, word := range cmd {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return invalid("invalid command: an argument is not valid UTF-8, or has a NUL byte")
		}
	}
	return nil
}

// parseStreams parses the parameters like NewOptions of
// k8s.io/cri-streaming/pkg/streaming/remotecommand: only "1" is true, a terminal has
// no stderr, and at least one stream is required.
func (asked *request) parseStreams(query url.Values) error {
	asked.stdin = query.Get("input") == "1"
	asked.stdout = query.Get("output") == "1"
	asked.tty = query.Get("tty") == "1"
	asked.stderr = query.Get("error") == "1" && !asked.tty
	if !asked.stdin && !asked.stdout && !asked.stderr {
		return invalid("no stream requested: set input, output or error to 1; a terminal (tty) has no error stream")
	}
	return nil
}

// parsePorts parses the ports of port-forward over WebSocket: each parameter is a
// comma-separated list, as in portforward.NewV4Options.
func parsePorts(lists []string) ([]int32, error) {
	var ports []int32
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil || port == 0 {
				return nil, invalid(fmt.Sprintf("invalid port %.20q: must be 1 to 65535", word))
			}
			if len(ports) == maxPorts {
				return nil, invalid(fmt.Sprintf("more than %d ports requested", maxPorts))
			}
			ports = append(ports, int32(port))
		}
	}
	if len(ports) == 0 {
		return nil, invalid("no port: over WebSocket, set the parameter port for each")
	}
	return ports, nil
}
