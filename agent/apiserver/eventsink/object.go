package eventsink

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// component is the kubelet's name as an event source.
const component = "kubelet"

// regarding returns the object that an event is about: its pod, or the node. As in
// the kubelet, the UID of the node is its name, by which kubectl selects events. A pod
// whose manifest has an invalid name cannot exist in the API, so its events are
// about the node.
func regarding(e *event.Event, nodeName string) v1.ObjectReference {
	if len(validation.IsDNS1123Subdomain(e.Pod.Name)) > 0 || len(validation.IsDNS1123Label(e.Pod.Namespace)) > 0 {
		return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)}
	}
	return v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}
}

// rename sets the name of an event from its stamp, or from the first following
// nanosecond whose name no other known event has.
func (s *Sink) rename(k *sentEvent, about string) {
	for {
		k.name = nameOf(about, k.stamp)
		k.stamp++
		if !s.taken(k) {
			return
		}
	}
}

func (s *Sink) taken(k *sentEvent) bool {
	for _, other := range s.sent {
		if other != k && other.name == k.name && other.namespace == k.namespace {
			return true
		}
	}
	return false
}

// nameOf returns the name of an event as in Kubernetes, shortened to the maximum
// length.
func nameOf(about string, stamp int64) string {
	end := fmt.Sprintf(".%x", uint64(stamp))
	if most := validation.DNS1123SubdomainMaxLength - len(end); len(about) > most {
		about = strings.TrimRight(about[:most], "-.")
	}
	return about + end
}

// wall converts then to the current wall clock. A node without a battery-backed clock
// records its first events in 1970 and connects after the clock was set. now is from
// the same clock as then, with its monotonic part; clock is now without it.
func wall(then, now, clock time.Time) time.Time { return clock.Add(-now.Sub(then)) }

func objectOf(e *event.Event, k *sentEvent, last time.Time, nodeName string) *v1.Event {
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: k.namespace, Name: k.name, Annotations: e.Annotations},
		InvolvedObject:      regarding(e, nodeName),
		Reason:              e.Reason,
		Message:             e.Message,
		Source:              v1.EventSource{Component: component, Host: nodeName},
		FirstTimestamp:      metav1.Time{Time: k.first},
		LastTimestamp:       metav1.Time{Time: last},
		Count:               int32(min(e.Count, 1<<30)),
		Type:                e.Type,
		ReportingController: component,
		ReportingInstance:   nodeName,
	}
}

// patchOf returns the JSON merge patch for an event that was repeated. It includes the
// message only for a combined event.
func patchOf(e *event.Event, last time.Time) ([]byte, error) {
	patch := struct {
		Count         int         `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{Count: min(e.Count, 1<<30), LastTimestamp: metav1.Time{Time: last}}
	if strings.HasPrefix(e.Message, event.Combined) {
		patch.Message = e.Message
	}
	return json.Marshal(patch)
}
