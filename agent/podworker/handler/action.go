// Package handler runs one action of a probe or a hook against a container: a
// command in it, an HTTP request, a TCP connection, a gRPC health check or a
// sleep. It decides whether the action succeeded and formats its failure. The
// packages probe and hook decide when an action runs and how its result is used.
//
// Texts and results are those of pkg/probe and pkg/kubelet/prober in
// Kubernetes 1.36, because users and tests match on them.
package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/wait"
)

// maxOutput is the maximum number of bytes that are kept of a command's output
// and read of a response's body or gRPC message.
const maxOutput = 10 << 10

// maxResponseHeader is the maximum size of a response's header in bytes: a
// container must not fill the agent's memory.
const maxResponseHeader = 64 << 10

// maxReceive is the maximum number of bytes that a server may send over HTTP/2
// before they are read. The default is 4 MiB.
const maxReceive = 64 << 10

// Status is the result of a probe's action.
type Status uint8

const (
	// Unknown means that the action could not be run and has no result.
	Unknown Status = iota
	// Success means that the action succeeded.
	Success
	// Warning means that the action succeeded, with a warning to report.
	Warning
	// Failure means that the action failed or timed out.
	Failure
)

func (s Status) String() string {
	return [...]string{"unknown", "success", "warning", "failure"}[s]
}

// Result is the result of a probe's action. Output is the reason of a failure or
// warning, or the output of a command that succeeded, for users. It has at most 10 KiB
// of a command's output or of a response's body, and at most 64 KiB of a gRPC server's
// message. It never contains the body of an HTTP failure.
type Result struct {
	Status Status
	Output string
}

// Exec runs commands in containers. Package container defines the contract of
// ExecSync.
type Exec interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Runner runs actions. It is safe for concurrent use, has no background
// goroutines and keeps no connections open.
type Runner struct {
	exec      Exec
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	transport *http.Transport
	commands  wait.Slots // limits the commands of probes
}

// New returns a Runner.
func New(exec Exec) *Runner {
	d := &net.Dialer{KeepAlive: -1, Control: setLinger}
	r := &Runner{exec: exec, dial: d.DialContext, commands: make(wait.Slots, maxCommands)}
	// No proxy: an action checks the container, not the path to it.
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

// setLinger sets SO_LINGER to one second, so that a closed connection does not stay
// in TIME_WAIT for a minute (kubernetes issue 89898). It ignores errors of the
// option: a probe works without it.
func setLinger(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
	})
}

// Target is the container that an action is run against.
type Target struct {
	ContainerID string
	Container   *v1.Container
	// IP is the pod's primary address, or the node's address with hostNetwork;
	// empty if it is not known.
	IP string
}

var errNoAddress = errors.New("pod has no IP address")

// address returns the address to connect to: the port at host, or at the pod if host
// is empty.
func (t *Target) address(host string, port intstr.IntOrString) (string, error) {
	number, err := portOf(port, t.Container)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = t.IP
	}
	if host == "" {
		return "", errNoAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// portOf resolves a port that may be the name of a port of the container, or a
// number written as a string (pkg/probe/util.go).
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

// userAgent returns the User-Agent of a kubelet of version.Kubernetes.
func userAgent(purpose string) string {
	major, minor := version.MajorMinor()
	return "kube-" + purpose + "/" + major + "." + minor
}
