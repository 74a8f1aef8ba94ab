package podstatus

import (
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// messageBytes is the maximum total size of the termination messages of one pod
// (MaxPodTerminationMessageLogLength in pkg/kubelet/container/runtime.go).
const messageBytes = 12 << 10

// trimMessages truncates each container's messages to an equal share of messageBytes and
// makes them valid UTF-8, which the API requires: a container may write any bytes.
func (g *generator) trimMessages(s *v1.PodStatus) {
	spec := &g.Pod.Spec
	share := messageBytes / max(1, len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers))
	for c := range pod.ContainerStatuses(s) {
		trimState(&c.State, share)
		trimState(&c.LastTerminationState, share)
	}
}

// trimState replaces a termination state whose message changes, since it may be
// shared with the previous status.
func trimState(s *v1.ContainerState, limit int) {
	if s.Terminated == nil {
		return
	}
	if m := trim(s.Terminated.Message, limit); m != s.Terminated.Message {
		t := *s.Terminated
		t.Message = m
		s.Terminated = &t
	}
}

// trim truncates text to limit bytes at the boundary of a character, and replaces invalid
// UTF-8.
func trim(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
