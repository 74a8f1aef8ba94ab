package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/local"
)

// addHealthz adds /healthz and /healthz/NAME, in the format of Kubernetes components
// (pkg/server/healthz of k8s.io/apiserver). The reasons of failed checks are not logged.
func (s *Server) addHealthz(exact map[string]http.Handler) {
	checks := local.WithPing(s.config.Checks)
	exact["/healthz"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		report, failed := examine(checks, query["exclude"], time.Now())
		switch {
		case len(failed) > 0:
			s.config.Log.Info("health check failed", "checks", failed)
			http.Error(w, report+"healthz check failed", http.StatusInternalServerError)
		case query.Has("verbose"):
			local.WriteText(w, http.StatusOK, report+"healthz check passed\n")
		default:
			local.WriteText(w, http.StatusOK, "ok")
		}
	})
	for _, check := range checks {
		exact["/healthz/"+check.Name] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := check.Healthy(time.Now()); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			local.WriteText(w, http.StatusOK, "ok")
		})
	}
}

// examine runs the checks that are not excluded, and returns a report and the names of
// the failed ones. The report has no reasons: only /healthz/NAME returns them.
func examine(checks []Check, exclude []string, now time.Time) (report string, failed []string) {
	report, failed = local.RunChecks(checks, exclude, now, func(error) string { return "reason withheld" })
	var unknown []string
	for _, name := range exclude {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		report += fmt.Sprintf("warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(slices.Compact(unknown), ","))
	}
	return report, failed
}

// masked replaces values that may be secret, as in the kubelet's logs.
const masked = "<masked>"

// configz serves /configz: the effective configuration (component-base/configz). The
// headers of staticPodURL are masked, and it has no user and no query, because these may
// contain a password or a token.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	kc := *s.config.Kubelet
	kc.Kind, kc.APIVersion = "KubeletConfiguration", kubelet.APIVersion
	if kc.StaticPodURLHeader != nil {
		headers := make(map[string][]string, len(kc.StaticPodURLHeader))
		for name := range kc.StaticPodURLHeader {
			headers[name] = []string{masked}
		}
		kc.StaticPodURLHeader = headers
	}
	if u, err := url.Parse(kc.StaticPodURL); err != nil {
		kc.StaticPodURL = masked
	} else {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		kc.StaticPodURL = u.String()
	}
	data, err := json.Marshal(map[string]any{"kubeletconfig": &kc})
	if err != nil {
		http.Error(w, "encode configuration: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // fails only if the client has disconnected
}
