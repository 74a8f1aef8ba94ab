package agent

import (
	"context"
	"net/http"

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
		a.sources = append(a.sources, health.Task{Name: "source-" + pod.SourceAPI, Run: a.cluster.pods.Run})
	}
	if len(a.sources) == 0 {
		log.Warn("no source of pods is configured", "effect", "no pod is started or removed", "remedy", "set staticPodPath, staticPodURL or --kubeconfig")
	}
	return nil
}
