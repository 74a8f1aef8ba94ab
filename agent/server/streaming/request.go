package streaming

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of what a request may say. The API server passes on what it got in
// a URL, of which it takes 1 MiB.
const (
	maxQuery = 256 << 10 // bytes, escaped
	maxName  = 253       // bytes of a name or a UID
	maxPorts = 128
)

// verb is the first word of a path.
type verb string

const (
	verbExec        verb = "exec"
	verbAttach      verb = "attach"
	verbRun         verb = "run"
	verbPortForward verb = "portForward"
)

// request is what a path and a query say.
type request struct {
	verb verb
	name Name

	cmd                        []string // exec, run
	stdin, stdout, stderr, tty bool     // exec, attach
	ports                      []int32  // port-forward over WebSocket
}

// parsePath reads /VERB/NAMESPACE/POD[/UID]/CONTAINER, without the container
// for port-forward. What can be no name of anything is not found.
func parsePath(method, path string) (request, error) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	asked := request{verb: verb(first)}
	methods := "GET, POST"
	switch asked.verb {
	case verbExec, verbAttach, verbPortForward:
	case verbRun:
		methods = "POST"
	default:
		return request{}, notFound("there is nothing at this path")
	}
	if method != http.MethodPost && (method != http.MethodGet || asked.verb == verbRun) {
		return asked, &refusal{
			code:   http.StatusMethodNotAllowed,
			header: http.Header{"Allow": {methods}},
			text:   fmt.Sprintf("/%s answers %s only", asked.verb, methods),
		}
	}
	words := strings.Split(rest, "/")
	for _, word := range words {
		if !isName(word) {
			return asked, notFound(fmt.Sprintf("a part of the path is no name: it is /%s/", asked.verb) + shape(asked.verb))
		}
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
		return asked, notFound(fmt.Sprintf("the path has too few or too many parts: it is /%s/", asked.verb) + shape(asked.verb))
	}
	asked.name.Namespace, asked.name.Pod = words[0], words[1]
	return asked, nil
}

func shape(v verb) string {
	if v == verbPortForward {
		return "NAMESPACE/POD[/UID]"
	}
	return "NAMESPACE/POD[/UID]/CONTAINER"
}

func notFound(text string) error { return &refusal{code: http.StatusNotFound, text: text} }
func invalid(text string) error  { return &refusal{code: http.StatusBadRequest, text: text} }

// isName accepts all names and UIDs that an API server accepts, and more.
func isName(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '.' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

// parseQuery reads what the request's verb takes from a query; the rest of
// the query means nothing, as in the kubelet.
func (asked *request) parseQuery(raw string, webSocket bool) error {
	if len(raw) > maxQuery {
		return &refusal{code: http.StatusRequestURITooLong, text: fmt.Sprintf("the query has %d bytes: %d are read; put a long script into the container", len(raw), maxQuery)}
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return invalid(fmt.Sprintf("the query cannot be read: %v", err))
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

// checkCommand refuses what no container could be asked to run: CRI has text
// in UTF-8, the kernel has text without zero bytes.
func checkCommand(cmd []string, parameter string) error {
	if len(cmd) == 0 || cmd[0] == "" {
		return invalid(fmt.Sprintf("no command is given: the parameter is %q", parameter))
	}
	for _, word := range cmd {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return invalid("a word of the command is not in UTF-8, or has a zero byte")
		}
	}
	return nil
}

// parseStreams reads the parameters of
// k8s.io/cri-streaming/pkg/streaming/remotecommand.NewOptions: only "1" is
// yes, a terminal has no stderr, and one stream must be left.
func (asked *request) parseStreams(query url.Values) error {
	asked.stdin = query.Get("input") == "1"
	asked.stdout = query.Get("output") == "1"
	asked.tty = query.Get("tty") == "1"
	asked.stderr = query.Get("error") == "1" && !asked.tty
	if !asked.stdin && !asked.stdout && !asked.stderr {
		return invalid("no stream is asked for: set one of input, output and error to 1; a terminal (tty) has no error")
	}
	return nil
}

// parsePorts reads the ports of WebSocket's port-forward: each parameter is a
// list with commas, as in portforward.NewV4Options.
func parsePorts(lists []string) ([]int32, error) {
	var ports []int32
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil || port == 0 {
				return nil, invalid(fmt.Sprintf("%.20q is no port: give port=1 to port=65535", word))
			}
			if len(ports) == maxPorts {
				return nil, invalid(fmt.Sprintf("more than %d ports are asked for", maxPorts))
			}
			ports = append(ports, int32(port))
		}
	}
	if len(ports) == 0 {
		return nil, invalid("no port is given: over WebSocket, the parameter port names each")
	}
	return ports, nil
}
