package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// listenSocket creates the socket. This agent has claimed the node, so an
// existing socket is stale and is replaced.
func (s *Server) listenSocket(ctx context.Context) (net.Listener, error) {
	path := s.config.SocketPath
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %q: path exists and is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	// Until then only the check of the peer's credentials protects it.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // the error of chmod is returned
		return nil, err
	}
	return newLimitListener(l, maxConnections), nil
}

// socket returns the handler of the socket. It rejects clients other than root
// and the agent's user.
func (s *Server) socket() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathPods, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, filterByName(s.config.Pods(r.Context()), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("GET "+PathEvents, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "true" {
			s.watchEvents(w, r)
			return
		}
		events := s.config.Events()
		if events == nil {
			events = []event.Event{}
		}
		writeJSON(w, http.StatusOK, events)
	})
	mux.HandleFunc("GET "+PathVersion, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, thisVersion())
	})
	mux.HandleFunc("GET "+PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.status(time.Now()))
	})
	mux.HandleFunc("GET "+PathUsage, s.usage)
	mux.HandleFunc("POST "+PathDrain, s.drain)
	mux.HandleFunc("DELETE "+PathDrain, s.cancelDrain)
	mux.HandleFunc("GET "+PathMetrics, s.metrics)
	mux.HandleFunc(PathExec, s.streaming)
	mux.HandleFunc(PathAttach, s.streaming)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, _ := r.Context().Value(connKey{}).(net.Conn); !trusted(conn) {
			writeJSON(w, http.StatusForbidden, Error{"only root may access the agent"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", metrics.ContentType)
	if err := s.config.Metrics(r.Context(), w); err != nil {
		// The client must not mistake a truncated text for a complete one.
		panic(http.ErrAbortHandler)
	}
}

// filterByName returns the pods whose name, or namespace/name, begins with text.
func filterByName(pods []Pod, text string) []Pod {
	out := make([]Pod, 0, len(pods))
	for _, p := range pods {
		if strings.HasPrefix(p.Pod.Name, text) || strings.HasPrefix(p.Pod.Namespace+"/"+p.Pod.Name, text) {
			out = append(out, p)
		}
	}
	return out
}

func (s *Server) status(now time.Time) Status {
	st := Status{
		Version: thisVersion(), Started: s.started, RuntimeCalls: s.config.RuntimeCalls(),
		Problem: s.config.Problem(), Todo: s.config.Todo(), Health: make(map[string]string),
	}
	if s.config.Cluster != nil {
		st.Cluster = s.config.Cluster()
	} else {
		st.Conditions = s.config.Conditions()
	}
	for _, check := range s.config.Checks {
		if err := check.Healthy(now); err != nil {
			st.Health[check.Name] = err.Error()
		}
	}
	return st
}

func thisVersion() Version {
	return Version{
		Release: version.Release(), Kubelet: version.Kubelet(), Built: version.BuildTime(),
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, PID: os.Getpid(),
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// trusted reports whether the peer is root or the agent's user, by the kernel's
// credentials of the connection (SO_PEERCRED, unix(7)).
func trusted(c net.Conn) bool {
	if g, ok := c.(*limitedConn); ok {
		c = g.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cerr == nil && err == nil && allowedUID(cred.Uid, os.Geteuid())
}

func allowedUID(peer uint32, own int) bool {
	return peer == 0 || int64(peer) == int64(own)
}
