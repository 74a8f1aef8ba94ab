package policy

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reason is the reason in the status of an evicted or rejected pod, and of its
// warning event (pkg/kubelet/eviction/helpers.go).
const Reason = "Evicted"

// Reason and message of the warning event of the node before a pod is evicted. The
// message is this text followed by the Resource of the signal.
const (
	ReasonThresholdMet  = "EvictionThresholdMet"
	MessageThresholdMet = "Attempting to reclaim "
)

// Annotations of the eviction event.
const (
	AnnotationContainers      = "offending_containers"
	AnnotationContainersUsage = "offending_containers_usage"
	AnnotationPod             = "offending_pod"
	AnnotationPodUsage        = "offending_pod_usage"
	AnnotationResource        = "starved_resource"
)

// immediate is the grace period of a pod that must terminate at once.
const immediate = time.Second

// Eviction describes how a pod is evicted and what is reported about it.
type Eviction struct {
	// Signal is the label of the cause in the metric kubelet_evictions.
	Signal string
	// Message is the message of the status and the event, both with Reason. Its
	// trailing space is upstream's.
	Message string
	// Annotations are the annotations of the event.
	Annotations map[string]string
	// Grace overrides the pod's own termination grace period. It can only shorten a
	// grace period that has begun.
	Grace time.Duration
	// Condition is the DisruptionTarget condition for the status, without times. It
	// is nil if the pod exceeded its own limit.
	Condition *v1.PodCondition
}

// Describe returns how a pod is evicted for the first of the thresholds to act on.
// act must not be empty. The observations are those from which the Decision was
// computed. maxGrace is evictionMaxPodGracePeriod, the longest grace period for a
// soft threshold.
func Describe(p *Pod, act []evictionapi.Threshold, o *evictionapi.Observations, maxGrace time.Duration) Eviction {
	t := act[0]
	e := Eviction{
		Signal: t.Signal.String(), Grace: grace(p.Pod, t, maxGrace),
		Annotations: map[string]string{},
	}
	starved := t.Signal.Resource()
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. ", starved)
	if seen := o[t.Signal]; seen.Known {
		fmt.Fprintf(&b, "Threshold quantity: %s, available: %s. ", t.Value.Format(seen.Capacity),
			resource.NewQuantity(seen.Available, t.Signal.Format()))
	}
	if p.Known {
		describePod(p, starved, &b, e.Annotations)
		describeContainers(p, starved, &b, e.Annotations)
		e.Annotations[AnnotationResource] = string(starved)
	}
	e.Message = b.String()
	e.Condition = &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: p.Pod.Generation,
		Reason: v1.PodReasonTerminationByKubelet, Message: e.Message,
	}
	return e
}

// grace returns the termination grace period: 1 s for a hard threshold; for a soft
// threshold the pod's own, at most longest. Upstream's pod workers also raise shorter
// periods to 1 s.
func grace(p *v1.Pod, t evictionapi.Threshold, longest time.Duration) time.Duration {
	if t.Hard() {
		return immediate
	}
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil && *own < int64(longest/time.Second) {
		longest = time.Duration(max(*own, 0)) * time.Second
	}
	return max(longest, immediate)
}

// describePod describes the memory usage and request of a pod with pod-level resources,
// whether the usage exceeds the request or not.
func describePod(p *Pod, starved v1.ResourceName, b *strings.Builder, annotations map[string]string) {
	if starved != v1.ResourceMemory || pod.PodLevelResources(p.Pod) == nil || !p.Memory.Known {
		return
	}
	asked, ok := p.Pod.Spec.Resources.Requests[starved]
	if !ok {
		return
	}
	used := resource.NewQuantity(p.Memory.Value, resource.BinarySI).String()
	fmt.Fprintf(b, "Pod %s was using %s, request is %s, has larger consumption of %s. ", p.Pod.Name, used, asked.String(), starved)
	annotations[AnnotationPod], annotations[AnnotationPodUsage] = p.Pod.Name, used
}

// describeContainers describes main and init containers whose usage of memory or disk
// exceeds their request, in the order of the stats. Ephemeral containers have no
// requests and are not reported.
func describeContainers(p *Pod, starved v1.ResourceName, b *strings.Builder, annotations map[string]string) {
	var names, amounts []string
	for i := range p.Containers {
		stats := &p.Containers[i]
		c, kind := pod.FindContainer(&p.Pod.Spec, stats.Name)
		used := stats.use(starved)
		if c == nil || kind == pod.Ephemeral || !used.Known {
			continue
		}
		asked := c.Resources.Requests[starved]
		if asked.CmpInt64(used.Value) >= 0 {
			continue
		}
		text := resource.NewQuantity(used.Value, resource.BinarySI).String()
		fmt.Fprintf(b, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, text, asked.String(), starved)
		names, amounts = append(names, c.Name), append(amounts, text)
	}
	annotations[AnnotationContainers] = strings.Join(names, ",")
	annotations[AnnotationContainersUsage] = strings.Join(amounts, ",")
}

// use returns the container's usage of a resource that can be requested.
func (c *Container) use(starved v1.ResourceName) Measurement {
	switch {
	case starved == v1.ResourceMemory:
		return c.Memory
	case starved == v1.ResourceEphemeralStorage && c.Rootfs.Bytes.Known && c.Logs.Bytes.Known:
		return Measured(pod.AddSaturating(c.Rootfs.Bytes.Value, max(c.Logs.Bytes.Value, 0)))
	}
	return Measurement{}
}
