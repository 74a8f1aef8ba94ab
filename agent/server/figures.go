package server

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/server/local"
)

// stats serves /stats/summary (pkg/kubelet/server/stats/handler.go).
func (s *Server) stats(w *deadlineWriter, r *http.Request, parts []string) {
	if parts[0] != "summary" {
		local.WriteText(w, http.StatusNotFound, "404: Page Not Found")
		return
	}
	if !slices.Contains(getPost, r.Method) {
		w.Header().Set("Allow", "GET, POST")
		local.WriteText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
		return
	}
	if err := r.ParseForm(); err != nil {
		local.WriteText(w, http.StatusInternalServerError, fmt.Sprintf("Internal Error: parse form failed: %v", err))
		return
	}
	// The form is read. From now on the server reads only to detect that the client
	// disconnects.
	_ = w.control.SetReadDeadline(time.Time{}) // supported by HTTP/1.1 and HTTP/2
	only := r.Form["only_cpu_and_memory"]
	if !s.acquireSnapshot(w, r) {
		return
	}
	defer s.slots.snapshots.free()
	w.Header().Set("Content-Type", "application/json")
	if err := s.config.Summary(r.Context(), w, len(only) == 1 && only[0] == "true"); err != nil {
		s.handleError(w, r, err)
	}
}

// metrics returns a handler that sends the text of write, compressed if the client
// accepts gzip.
func (s *Server) metrics(write Text) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := w.(*deadlineWriter) // route passes a *deadlineWriter
		if !s.acquireSnapshot(p, r) {
			return
		}
		defer s.slots.snapshots.free()
		p.Header().Set("Content-Type", metrics.ContentType)
		p.Header().Set("X-Content-Type-Options", "nosniff")
		p.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r.Header) {
			if err := write(r.Context(), p); err != nil {
				s.handleError(p, r, err)
			}
			return
		}
		z := &gzipResponse{from: s.deflate, to: p}
		defer z.release()
		err := write(r.Context(), z)
		if err == nil {
			err = z.finish()
		}
		if err != nil {
			s.handleError(p, r, err)
		}
	})
}

// handleError logs the error of a response. It sends a 500 if nothing was written yet, and
// aborts the response otherwise.
func (s *Server) handleError(w *deadlineWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.config.Log.Warn("cannot serve request", "path", r.URL.Path, "error", err)
	}
	if w.wrote {
		abort()
	}
	w.Header().Del("Content-Encoding")
	local.WriteText(w, http.StatusInternalServerError, fmt.Sprintf("Internal Error: %v", err))
}
