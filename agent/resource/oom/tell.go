package oom

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// reasonSystem and systemMessage are the kubelet's
// (pkg/kubelet/oom/oom_watcher_linux.go). The kubelet adds the process, which only
// the kernel log names.
const (
	reasonSystem  = "SystemOOM"
	systemMessage = "System OOM encountered"
)

// recordKill records the pod's event.
func (w *Watcher) recordKill(p *v1.Pod, name string, k kill) {
	w.cfg.Events.Warning(pod.RefOf(p), Reason, message(p, name, k))
}

// recordUnnamed records the events of kills whose container name has become known.
func (w *Watcher) recordUnnamed(l *podCounters, p *v1.Pod, seen *container.Observed) {
	l.unreported = slices.DeleteFunc(l.unreported, func(k kill) bool {
		c := find(seen, k.id)
		if c == nil || c.Name == "" {
			return false
		}
		w.recordKill(p, c.Name, k)
		return true
	})
}

// nameBy returns the container name from the pod's status, or "".
func nameBy(s *v1.PodStatus, id string) string {
	for c := range pod.ContainerStatuses(s) {
		if pod.ContainerID(c) == id {
			return c.Name
		}
	}
	return ""
}

// message describes whose memory was exhausted and what was killed.
func message(p *v1.Pod, name string, k kill) string {
	why := ""
	switch k.cause {
	case ofContainer:
		why = fmt.Sprintf("Container %s reached its memory limit%s", name, ofLimit(memoryLimit(p, name)))
	case ofPod:
		limits := pod.Limits(p)
		bytes := int64(0)
		if pod.HasLimit(p, v1.ResourceMemory) {
			bytes = pod.Value(*limits.Memory())
		}
		why = fmt.Sprintf("The pod %s reached its memory limit%s", p.Name, ofLimit(bytes))
	case ofPods:
		why = "All pods together reached the node's memory limit for pods"
	case ofNode:
		why = "The node ran out of memory"
	}
	switch {
	case k.whole:
		return fmt.Sprintf("%s: all processes of container %s were killed", why, name)
	case k.n == 1:
		return fmt.Sprintf("%s: a process of container %s was killed", why, name)
	}
	return fmt.Sprintf("%s: %d processes of container %s were killed", why, k.n, name)
}

// ofLimit formats a limit as a suffix.
func ofLimit(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return " of " + resource.NewQuantity(bytes, resource.BinarySI).String()
}

// systemOOM records the node's event. victims describes what was killed in pods.
func (w *Watcher) systemOOM(victims []string) {
	text := systemMessage + ", victim: a process outside of all pods"
	if len(victims) > 0 {
		text = systemMessage + ", victim: " + strings.Join(victims, ", ")
	}
	w.cfg.Events.Warning(pod.Ref{}, reasonSystem, text)
}
