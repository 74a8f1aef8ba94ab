package cri

import (
	"context"
	"log/slog"
	"path"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// trace logs the duration of a call at debug level: the lines of a pod are the
// spans of its start.
func (d *Driver) trace(ctx context.Context, method string, req, reply any, took time.Duration) {
	if !d.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 5), slog.String("call", path.Base(method)), slog.Duration("took", took))
	for _, message := range []any{req, reply} {
		if r, ok := message.(*runtimeapi.RunPodSandboxRequest); ok {
			attrs = append(attrs, slog.String("podUID", r.GetConfig().GetMetadata().GetUid()))
		}
		if r, ok := message.(interface{ GetPodSandboxId() string }); ok {
			attrs = append(attrs, slog.String("sandboxID", r.GetPodSandboxId()))
		}
		if r, ok := message.(interface{ GetContainerId() string }); ok {
			attrs = append(attrs, slog.String("containerID", r.GetContainerId()))
		}
	}
	d.log.LogAttrs(ctx, slog.LevelDebug, "called the container runtime", attrs...)
}
