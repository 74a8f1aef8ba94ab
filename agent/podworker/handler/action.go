// Package handler runs one action against a container: a command in it, an
// HTTP request, a TCP connection or a gRPC health check, as its probes and
// hooks ask for. It owns what counts as success and the words in which a
// failure is told; when an action runs, and what follows from its result, is
// decided by probe and lifecycle.
//
// Texts and results are those of pkg/probe and pkg/kubelet/prober in
// Kubernetes 1.36: people and tests match on them.
package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/config/version"
)

// maxOutput bounds what is kept of a command's output and read of a
// response's body, in bytes.
const maxOutput = 10 << 10

// maxResponseHeader bounds a response's header in bytes: a container must not
// fill the agent's memory.
const maxResponseHeader = 64 << 10

// maxReceive bounds what a server may send over HTTP/2 before it is read, in
// bytes; by default that is 4 MiB.
const maxReceive = 64 << 10

// Status says how a probe's action ended.
type Status uint8

// The results of a probe's action.
const (
	// Unknown: the action could not be run; there is no result.
	Unknown Status = iota
	// Success: it did what it should.
	Success
	// Warning is a success about which somebody should be told.
	Warning
	// Failure: it did not, or not in time.
	Failure
)

func (s Status) String() string {
	switch s {
	case Success:
		return "success"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	case Unknown:
	}
	return "unknown"
}

// Result is what a probe's action found. Output is for people: why it failed
// or warns; at most about 10 KiB, and never the body of an HTTP failure.
type Result struct {
	Status Status
	Output string
}

// Exec runs commands in containers. container.Containers says what ExecSync
// promises.
type Exec interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Config is what a Runner works with.
type Config struct {
	Exec Exec
	// Dial opens connections; nil is the system's TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Runner runs actions. It is safe for concurrent use, starts nothing of its
// own and keeps no connections.
type Runner struct {
	exec      Exec
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	transport *http.Transport
	commands  gate // of probes
}

// New makes a Runner.
func New(cfg Config) *Runner {
	r := &Runner{exec: cfg.Exec, dial: cfg.Dial, commands: newGate()}
	if r.dial == nil {
		d := &net.Dialer{KeepAlive: -1, Control: linger}
		r.dial = d.DialContext
	}
	// No proxy: an action is about the container, not about the way to it.
	r.transport = &http.Transport{
		DialContext:            r.dial,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // certificates of probed containers are not verified (API contract)
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: maxReceive, MaxReceiveBufferPerConnection: maxReceive},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxResponseHeader,
		ReadBufferSize:         1 << 10,
		WriteBufferSize:        1 << 10,
	}
	return r
}

// linger lets a closed connection go after a second, where the system would
// keep each for a minute (kubernetes issue 89898). It fails for nothing that
// a probe needs.
func linger(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
	})
}

// Target is what an action is run against.
type Target struct {
	ContainerID string
	Container   *v1.Container
	// IP is the pod's primary address, the node's own on the host's network;
	// "" if it is not known.
	IP string
}

// errNoAddress says that an action has nowhere to connect to.
var errNoAddress = errors.New("the pod has no IP address")

// address is where to connect to: host, or the pod if that is empty.
func (t *Target) address(host string, port int) (string, error) {
	if host == "" {
		host = t.IP
	}
	if host == "" {
		return "", errNoAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// portOf resolves a port that may be the name of one of the container's, or
// a number written as a string (pkg/probe/util.go).
func portOf(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := int(port.IntVal)
	if port.Type == intstr.String {
		n = 0
		for i := range c.Ports {
			if n == 0 && c.Ports[i].Name == port.StrVal && port.StrVal != "" {
				n = int(c.Ports[i].ContainerPort)
			}
		}
		if n == 0 {
			var err error
			if n, err = strconv.Atoi(port.StrVal); err != nil {
				return 0, fmt.Errorf("find port %q of container %s: %w", port.StrVal, c.Name, errNoPort)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("port %d of container %s: %w", n, c.Name, errNoPort)
	}
	return n, nil
}

var errNoPort = errors.New("no such port")

// userAgent is what a kubelet of this release calls itself.
func userAgent(purpose string) string {
	release := strings.TrimPrefix(version.Kubernetes, "v")
	if parts := strings.SplitN(release, ".", 3); len(parts) == 3 {
		release = parts[0] + "." + parts[1]
	}
	return "kube-" + purpose + "/" + release
}
