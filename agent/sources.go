package agent

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// assembleSources builds the configured sources of pods and the mux that merges them.
func (a *agent) assembleSources() error {
	cfg, log := a.cfg, a.log
	type runner interface {
		Run(ctx context.Context, set func(context.Context, source.PodSet)) error
	}
	var names []string
	var runners []runner
	if path := cfg.Kubelet.StaticPodPath; path != "" {
		file, err := source.NewFile(source.FileConfig{Path: path, NodeName: cfg.NodeName, Log: log, Events: a.events})
		if err != nil {
			return err
		}
		names, runners = append(names, pod.SourceFile), append(runners, file)
	}
	if url := cfg.Kubelet.StaticPodURL; url != "" {
		web, err := source.NewHTTP(source.HTTPConfig{
			URL: url, Header: http.Header(cfg.Kubelet.StaticPodURLHeader), NodeName: cfg.NodeName,
			Period: cfg.Kubelet.HTTPCheckFrequency.Duration, Log: log, Events: a.events,
		})
		if err != nil {
			return err
		}
		names, runners = append(names, pod.SourceHTTP), append(runners, web)
	}
	expected := names
	if a.cluster != nil {
		expected = append(expected, pod.SourceAPI)
	}
	a.mux = source.NewMux(a.events, expected...)
	a.sources = make([]health.Task, len(names))
	for i, r := range runners {
		name := names[i]
		set := func(ctx context.Context, pods source.PodSet) { a.mux.Set(ctx, name, pods) }
		a.sources[i] = health.Task{Name: "source-" + name, Run: func(ctx context.Context) error { return r.Run(ctx, set) }}
	}
	if a.cluster != nil {
		a.sources = append(a.sources, health.Task{Name: "source-" + pod.SourceAPI, Run: a.followPods()})
	}
	if len(a.sources) == 0 {
		log.Warn("no source of pods is configured", "effect", "no pod is started or removed", "remedy", "set staticPodPath, staticPodURL or --kubeconfig")
	}
	return nil
}

// plainURL returns what the operator must do about a staticPodURL without TLS: anyone on the
// path to that server can choose the node's pods, which may be privileged. Loopback is safe.
func plainURL(cfg *config.Config) func() string {
	problem := ""
	if u, err := url.Parse(cfg.Kubelet.StaticPodURL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		problem = "staticPodURL is http, so anyone on the path to " + u.Host + " can run pods on this node: use https"
	}
	return func() string { return problem }
}

// loopback reports whether a host is this one. It does not resolve names other than localhost:
// the result would not be authenticated either.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// healthzAddress returns the address of /healthz, or "" if it is disabled.
func healthzAddress(cfg *config.Config) string {
	port := *cfg.Kubelet.HealthzPort
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(port)))
}

// maxBackoff returns the limit of the crash loop backoff; 0 means the default.
func maxBackoff(cfg *config.Config) time.Duration {
	if p := cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil {
		return p.Duration
	}
	return 0
}
