package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reason is that of an evicted or refused pod's status, and of its event,
// which is a warning (pkg/kubelet/eviction/helpers.go).
const Reason = "Evicted"

// What is told of the node before a pod is evicted, a warning: the message is
// this and the Resource of the signal.
const (
	ReasonThresholdMet  = "EvictionThresholdMet"
	MessageThresholdMet = "Attempting to reclaim "
)

// Annotations of the event.
const (
	AnnotationContainers      = "offending_containers"
	AnnotationContainersUsage = "offending_containers_usage"
	AnnotationPod             = "offending_pod"
	AnnotationPodUsage        = "offending_pod_usage"
	AnnotationResource        = "starved_resource"
)

// immediate is the grace of a pod that has to go at once.
const immediate = time.Second

// Eviction is what is to be done to a pod, and what it is told.
type Eviction struct {
	// Signal is the name of the cause in the metric kubelet_evictions.
	Signal string
	// Message is that of the status and the event, both with Reason. Its
	// trailing space is upstream's.
	Message string
	// Annotations are those of the event.
	Annotations map[string]string
	// Grace goes before the pod's own termination grace period. A grace that
	// the pod has already may only get shorter by it.
	Grace time.Duration
	// Condition is DisruptionTarget for the status, without times; nil where
	// the pod itself is to blame.
	Condition *v1.PodCondition
}

// Describe says how a pod is evicted for the first of the thresholds to act
// on, of which there must be one. The observations are those that the Verdict
// was made from. MaxGrace is evictionMaxPodGracePeriod: the longest grace for a
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
		blamePod(p, starved, &b, e.Annotations)
		blameContainers(p, starved, &b, e.Annotations)
		e.Annotations[AnnotationResource] = string(starved)
	}
	e.Message = b.String()
	e.Condition = &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: p.Pod.Generation,
		Reason: v1.PodReasonTerminationByKubelet, Message: e.Message,
	}
	return e
}

// grace is how long the pod's containers get to stop: a second for a hard
// threshold; for a soft one the pod's grace period up to the longest. Workers
// of upstream raise anything less to a second, too.
func grace(p *v1.Pod, t evictionapi.Threshold, longest time.Duration) time.Duration {
	if t.Hard() {
		return immediate
	}
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil && *own < int64(longest/time.Second) {
		longest = time.Duration(max(*own, 0)) * time.Second
	}
	return max(longest, immediate)
}

// blamePod tells what a pod with resources as a whole has of memory and asked
// for, be it more or not.
func blamePod(p *Pod, starved v1.ResourceName, b *strings.Builder, annotations map[string]string) {
	if starved != v1.ResourceMemory || !ownResources(p.Pod) || !p.Memory.Known {
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

// blameContainers tells of main and init containers that use more memory or
// disk than they request, in the order of the figures. Ephemeral containers
// can request nothing and are not blamed.
func blameContainers(p *Pod, starved v1.ResourceName, b *strings.Builder, annotations map[string]string) {
	var names, amounts []string
	for i := range p.Containers {
		figures := &p.Containers[i]
		c := blamable(&p.Pod.Spec, figures.Name)
		used := figures.use(starved)
		if c == nil || !used.Known {
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

// use is what a container has of a resource that it can request.
func (c *Container) use(starved v1.ResourceName) Figure {
	switch starved {
	case v1.ResourceMemory:
		return c.Memory
	case v1.ResourceEphemeralStorage:
		if c.Rootfs.Bytes.Known && c.Logs.Bytes.Known {
			return Measured(plus(c.Rootfs.Bytes.Value, max(c.Logs.Bytes.Value, 0)))
		}
		return Figure{}
	default:
		return Figure{}
	}
}

// blamable is the main or init container of that name, or nil.
func blamable(s *v1.PodSpec, name string) *v1.Container {
	for _, list := range [...][]v1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
