package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// volumeRetry is when volumes are made up to date again that could not be.
const volumeRetry = time.Minute

// setUp makes the pod's volumes, or brings their content up to date.
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

// refresh brings the volumes of a pod that runs up to date with the objects
// and the fields that they show. next is when to look again; zero is never.
func (s *Syncer) refresh(ctx context.Context, p *v1.Pod, o *container.Observed) (next time.Time) {
	sandbox := o.Sandbox()
	if sandbox == nil || !sandbox.Ready || !changes(p) {
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

// changes says whether the content of a volume follows objects or the pod's
// own fields.
func changes(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil {
			return true
		}
	}
	return false
}
