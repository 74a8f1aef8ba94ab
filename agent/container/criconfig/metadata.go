package criconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Hash returns the annotation io.kubernetes.container.hash. A container whose
// hash differs from that of its spec was started from another spec and is
// restarted. Only name and image count, since nothing else may change in a
// running pod. It equals HashContainer in pkg/kubelet/container/helpers.go:
// FNV-1a over what spew's %#v makes of the JSON's bytes, in lower-case hex
// without leading zeros.
func Hash(c *v1.Container) string {
	picked, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil { // two strings always encode
		panic(err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", picked)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// The runtime returns labels and annotations of all sandboxes in one response, and those of
// all containers in another. A response of more than 16 MiB fails. So each pod has a share,
// in bytes. With 110 pods, each with a sandbox and a former one, running containers and
// exited ones, both responses stay below 8 MiB.
const (
	sandboxShare   = 16 << 10 // keys and values of the pod's labels, and the same for its annotations
	containerShare = 32 << 10 // for hooks and ports in containerAnnotations, for all containers of a pod
)

// fitEntries returns a copy of as many entries as fit into share bytes, the
// shortest first. It returns nil if all is nil.
func fitEntries(all map[string]string, share int) map[string]string {
	size := 0
	for k, v := range all {
		size += len(k) + len(v)
	}
	if size <= share {
		return maps.Clone(all)
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a)+len(all[a]), len(b)+len(all[b])), cmp.Compare(a, b))
	})
	kept := map[string]string{}
	for _, k := range keys {
		if share -= len(k) + len(all[k]); share < 0 {
			break
		}
		kept[k] = all[k]
	}
	return kept
}

// fitsShare reports whether text, which describes a hook or ports, fits into half of the
// container's share.
func fitsShare(p *v1.Pod, text []byte) bool {
	containers := len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	return len(text) <= containerShare/2/max(containers, 1)
}

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

// containerAnnotations returns the annotations with which a restarted agent can handle a
// container whose pod spec is no longer known (pkg/kubelet/kuberuntime/labels.go). It omits a
// hook and ports that exceed the container's share.
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
