package oom

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// reasonSystem and systemMessage are the kubelet's
// (pkg/kubelet/oom/oom_watcher_linux.go); it adds the process, which only the
// kernel log knows.
const (
	reasonSystem  = "SystemOOM"
	systemMessage = "System OOM encountered"
)

// tell makes the pod's event.
func (w *Watcher) tell(p *v1.Pod, name string, k kill) {
	w.cfg.Events.Warning(pod.RefOf(p), Reason, message(p, name, k))
}

// tellLate tells of kills whose container has a name by now.
func (w *Watcher) tellLate(l *ledger, p *v1.Pod, seen *container.Observed) {
	left := l.untold[:0]
	for _, k := range l.untold {
		if name := nameIn(seen, k.id); name != "" {
			w.tell(p, name, k)
		} else {
			left = append(left, k)
		}
	}
	if l.untold = left; len(left) == 0 {
		l.untold = nil
	}
}

func nameIn(seen *container.Observed, id string) string {
	if c := find(seen, id); c != nil {
		return c.Name
	}
	return ""
}

// nameBy is the name by the pod's status, or "".
func nameBy(s *v1.PodStatus, id string) string {
	for c := range pod.Statuses(s) {
		if _, known, _ := strings.Cut(c.ContainerID, "://"); known == id {
			return c.Name
		}
	}
	return ""
}

// message says whose memory ran out, and what was killed for it.
func message(p *v1.Pod, name string, k kill) string {
	why := ""
	switch k.cause {
	case ofContainer:
		why = fmt.Sprintf("Container %s ran into its memory limit%s", name, of(memoryLimit(p, name)))
	case ofPod:
		limits := pod.Limits(p)
		bytes := int64(0)
		if pod.Limited(p, v1.ResourceMemory) {
			bytes = limits.Memory().Value()
		}
		why = fmt.Sprintf("The pod %s ran into its memory limit%s", p.Name, of(bytes))
	case ofPods:
		why = "All pods together ran into the limit of memory that the node has for them"
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

// of is a limit after its name.
func of(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return " of " + resource.NewQuantity(bytes, resource.BinarySI).String()
}

// systemOOM makes the node's event; victims are what was killed in pods.
func (w *Watcher) systemOOM(victims []string) {
	text := systemMessage + ", victim: a process that is in no pod"
	if len(victims) > 0 {
		text = systemMessage + ", victim: " + strings.Join(victims, ", ")
	}
	w.cfg.Events.Warning(pod.Ref{}, reasonSystem, text)
}
