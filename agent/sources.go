package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// assembleSources makes the configured sources and the mux that expects them.
func (p *parts) assembleSources(cfg *config.Config, log *slog.Logger) error {
	type runner interface {
		Run(ctx context.Context, set func(context.Context, source.PodSet)) error
	}
	var names []string
	var runners []runner
	if path := cfg.Kubelet.StaticPodPath; path != "" {
		file, err := source.NewFile(source.FileConfig{Path: path, NodeName: cfg.NodeName, Log: log, Events: p.events})
		if err != nil {
			return err
		}
		names, runners = append(names, pod.SourceFile), append(runners, file)
	}
	if url := cfg.Kubelet.StaticPodURL; url != "" {
		web, err := source.NewHTTP(source.HTTPConfig{
			URL: url, Header: http.Header(cfg.Kubelet.StaticPodURLHeader), NodeName: cfg.NodeName,
			Period: cfg.Kubelet.HTTPCheckFrequency.Duration, Log: log, Events: p.events,
		})
		if err != nil {
			return err
		}
		names, runners = append(names, pod.SourceHTTP), append(runners, web)
	}
	expected := names
	if p.cluster != nil {
		expected = append(expected, pod.SourceAPI)
	}
	p.mux = source.NewMux(p.events, expected...)
	p.sources = make([]task, len(names))
	for i, r := range runners {
		name := names[i]
		set := func(ctx context.Context, wanted source.PodSet) { p.mux.Set(ctx, name, wanted) }
		p.sources[i] = task{name: "source-" + name, run: func(ctx context.Context) error { return r.Run(ctx, set) }}
	}
	if p.cluster != nil {
		p.sources = append(p.sources, task{name: "source-" + pod.SourceAPI, run: p.cluster.follow(p, log)})
	}
	if len(p.sources) == 0 {
		log.Warn("no pod source is configured, nothing will be started or removed: set staticPodPath, staticPodURL or --kubeconfig")
	}
	return nil
}

// plainURL returns what somebody has to do about a staticPodURL: whoever is on
// the way to a server without TLS chooses the node's pods, which may be root.
// The loopback has no way.
func plainURL(cfg *config.Config) func() string {
	problem := ""
	if u, err := url.Parse(cfg.Kubelet.StaticPodURL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		problem = "staticPodURL is http, so whoever is on the way to " + u.Host + " can run pods on this node: use https"
	}
	return func() string { return problem }
}

// loopback reports whether a host is this one. Other names than localhost are
// not looked up: the answer would not be authenticated either.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// healthzAddress is where healthz is answered, or "" if it is switched off.
func healthzAddress(cfg *config.Config) string {
	port := *cfg.Kubelet.HealthzPort
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(port)))
}

// maxBackoff is the longest crash-loop wait; 0 is the default.
func maxBackoff(cfg *config.Config) time.Duration {
	if p := cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil {
		return p.Duration
	}
	return 0
}
