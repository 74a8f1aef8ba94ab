package podsync

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// volumeRetry is the interval between attempts to refresh volumes after a failure.
const volumeRetry = time.Minute

// setUp creates the pod's volumes, or updates their content.
func (s *Syncer) setUp(ctx context.Context, p *v1.Pod, n *criconfig.Node, ips []string) (*volume.Result, error) {
	if len(ips) == 0 && p.Spec.HostNetwork {
		ips = n.HostIPs
	}
	return s.Volumes.Setup(ctx, p, volume.Input{
		Objects: s.Objects,
		Field:   func(path string) (string, error) { return criconfig.FieldValue(p, n, ips, path) },
		Resource: func(ref *v1.ResourceFieldSelector) (string, error) {
			return criconfig.ResourceValue(p, ref.ContainerName, ref, n)
		},
	})
}

// refresh updates the volumes of a pod with a ready sandbox from the objects and the fields
// that they project. next is the time of the next refresh; zero means never.
func (s *Syncer) refresh(ctx context.Context, p *v1.Pod, o *container.Observed) (next time.Time) {
	sandbox := o.Sandbox()
	if sandbox == nil || !sandbox.Ready || !hasDynamicVolumes(p) {
		return time.Time{}
	}
	node, err := s.Node(ctx)
	if err != nil {
		return s.now().Add(volumeRetry)
	}
	result, err := s.setUp(ctx, p, node, sandbox.IPs)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.Events.Warning(pod.RefOf(p), reasonFailedMount, err.Error())
		return s.now().Add(volumeRetry)
	default:
		return result.Refresh
	}
	return time.Time{}
}

// hasDynamicVolumes reports whether the content of a volume depends on objects or on the
// pod's own fields.
func hasDynamicVolumes(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
	})
}
