package criconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// sandboxLabels returns the pod's own labels, within its share, and those that
// identify the pod.
func sandboxLabels(p *v1.Pod) map[string]string {
	labels := make(map[string]string, len(p.Labels)+3)
	maps.Copy(labels, fitEntries(p.Labels, sandboxShare))
	labels[container.LabelPodName] = p.Name
	labels[container.LabelPodNamespace] = p.Namespace
	labels[container.LabelPodUID] = string(p.UID)
	return labels
}

func containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		container.LabelPodName:       p.Name,
		container.LabelPodNamespace:  p.Namespace,
		container.LabelPodUID:        string(p.UID),
		container.LabelContainerName: c.Name,
	}
}

// containerAnnotations returns the annotations with which a restarted agent can
// handle a container whose pod spec is gone
// (pkg/kubelet/kuberuntime/labels.go). It leaves out a hook and ports that
// exceed the container's share.
func containerAnnotations(in *ContainerInput) (map[string]string, error) {
	p, c := in.Pod, in.Container
	a := map[string]string{
		container.AnnotationHash:                     Hash(c),
		container.AnnotationRestartCount:             strconv.Itoa(in.RestartCount),
		container.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		container.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if s := p.DeletionGracePeriodSeconds; s != nil {
		a[container.AnnotationPodDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		a[container.AnnotationPodTerminationGrace] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("lifecycle.preStop: %w", err)
		}
		if fitsShare(p, raw) {
			a[container.AnnotationPreStopHandler] = string(raw)
		}
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("ports: %w", err)
		}
		if fitsShare(p, raw) {
			a[container.AnnotationPorts] = string(raw)
		}
	}
	if in.Backoff > 0 {
		seconds := (in.Backoff + time.Second - 1) / time.Second
		a[container.AnnotationBackoff] = strconv.FormatInt(int64(seconds), 10)
	}
	return a, nil
}
