package local

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

func (s *Server) listenHealthz(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", s.config.HealthzAddress)
}

// PagePrefix is what the paths of the status page begin with, but for /
// itself.
const PagePrefix = "/page/"

// healthz answers /healthz and /healthz/NAME in the form of Kubernetes'
// components (k8s.io/apiserver/pkg/server/healthz): "ok" and 200, or 500
// with a line for each check, which ?verbose gives for 200 too;
// ?exclude=NAME leaves a check out. Unlike those, it tells the reason of a
// failure: this is what someone at the board asks first, and the reasons
// hold no secrets.
func (s *Server) healthz() http.Handler {
	checks := append([]Check{{Name: "ping", Healthy: func(time.Time) error { return nil }}}, s.config.Checks...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		report, healthy := examine(checks, query["exclude"], time.Now())
		if healthy && !query.Has("verbose") {
			report = "ok"
		}
		plain(w, healthy, report)
	})
	for _, check := range checks {
		mux.HandleFunc("GET /healthz/"+check.Name, func(w http.ResponseWriter, _ *http.Request) {
			if err := check.Healthy(time.Now()); err != nil {
				plain(w, false, fmt.Sprintf("%s failed: %v\n", check.Name, err))
				return
			}
			plain(w, true, "ok")
		})
	}
	if s.config.Page != nil {
		mux.Handle("/{$}", s.config.Page)
		mux.Handle(PagePrefix, s.config.Page)
	}
	return mux
}

// examine runs the checks that are not excluded and reports on each.
func examine(checks []Check, exclude []string, now time.Time) (report string, healthy bool) {
	var b strings.Builder
	healthy = true
	for _, check := range checks {
		if slices.Contains(exclude, check.Name) {
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if err := check.Healthy(now); err != nil {
			healthy = false
			fmt.Fprintf(&b, "[-]%s failed: %v\n", check.Name, err)
			continue
		}
		fmt.Fprintf(&b, "[+]%s ok\n", check.Name)
	}
	if healthy {
		b.WriteString("healthz check passed\n")
	} else {
		b.WriteString("healthz check failed\n")
	}
	return b.String(), healthy
}

func plain(w http.ResponseWriter, healthy bool, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !healthy {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write([]byte(text)) // the client went away
}
