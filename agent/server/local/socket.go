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

// listenSocket makes the socket anew. This agent holds the node's claim, so a
// socket that is there was left behind.
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
		return nil, fmt.Errorf("listen on %q: something that is no socket has this name", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace the socket of an earlier agent: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	// Until this is done the peer's credentials alone decide.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // the error of chmod is told
		return nil, err
	}
	return newGate(l, maxConnections), nil
}

// socket answers those whom withPeer found to be root or the agent's user.
func (s *Server) socket() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathPods, func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, named(s.config.Pods(r.Context()), r.URL.Query().Get("name")))
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
		answer(w, http.StatusOK, events)
	})
	mux.HandleFunc("GET "+PathVersion, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, thisVersion())
	})
	mux.HandleFunc("GET "+PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, s.status(time.Now()))
	})
	mux.HandleFunc("GET "+PathUsage, s.usage)
	mux.HandleFunc("POST "+PathDrain, s.drain)
	mux.HandleFunc("DELETE "+PathDrain, s.cancelDrain)
	mux.HandleFunc("GET "+PathMetrics, s.metrics)
	mux.HandleFunc(PathExec, s.streaming)
	mux.HandleFunc(PathAttach, s.streaming)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed, _ := r.Context().Value(peerKey{}).(bool); !allowed {
			answer(w, http.StatusForbidden, Error{"only root may ask the agent"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", metrics.ContentType)
	if s.config.Metrics == nil {
		return
	}
	if err := s.config.Metrics(r.Context(), w); err != nil {
		// A text that is cut off must not be taken for whole.
		panic(http.ErrAbortHandler)
	}
}

// named keeps the pods whose name, or namespace/name, begins with text.
func named(pods []Pod, text string) []Pod {
	out := make([]Pod, 0, len(pods))
	for _, p := range pods {
		if p.Pod == nil {
			continue
		}
		if strings.HasPrefix(p.Pod.Name, text) || strings.HasPrefix(p.Pod.Namespace+"/"+p.Pod.Name, text) {
			out = append(out, p)
		}
	}
	return out
}

func (s *Server) status(now time.Time) Status {
	st := Status{Version: thisVersion(), Started: s.started}
	if s.config.RuntimeCalls != nil {
		st.RuntimeCalls = s.config.RuntimeCalls()
	}
	if s.config.Cluster != nil {
		st.Cluster = s.config.Cluster()
	} else if s.config.Conditions != nil {
		st.Conditions = s.config.Conditions()
	}
	if s.problem != nil {
		st.Problem = s.problem()
	}
	if s.config.Todo != nil {
		st.Todo = s.config.Todo()
	}
	for _, check := range s.config.Checks {
		if err := check.Healthy(now); err != nil {
			if st.Health == nil {
				st.Health = make(map[string]string)
			}
			st.Health[check.Name] = err.Error()
		}
	}
	return st
}

func thisVersion() Version {
	return Version{
		Release: version.Release(), Kubelet: version.Kubelet(), Built: version.Built(),
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, PID: os.Getpid(),
	}
}

// connKey is the context key of a connection.
type connKey struct{}

// peerKey is the context key under which a connection says whether root, or
// the agent's own user, is at its other end.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(context.WithValue(ctx, connKey{}, c), peerKey{}, trusted(c))
}

// trusted asks the kernel who connected (SO_PEERCRED, unix(7)).
func trusted(c net.Conn) bool {
	if g, ok := c.(*gatedConn); ok {
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
