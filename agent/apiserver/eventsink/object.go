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

// component is the kubelet's name as a source of events.
const component = "kubelet"

// regarding is what an event is about: its pod, or the node, which the kubelet
// gives its name as UID, and kubectl looks for that. A pod of a manifest so
// broken that its name is none is nothing on the server either.
func regarding(e *event.Event, nodeName string) v1.ObjectReference {
	if len(validation.IsDNS1123Subdomain(e.Pod.Name)) > 0 || len(validation.IsDNS1123Label(e.Pod.Namespace)) > 0 {
		return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)}
	}
	return v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}
}

// rename gives an event the name of its first time, or of the first nanosecond
// after that whose name is free.
func (s *Sink) rename(k *known, about string) {
	for {
		k.name = nameOf(about, k.stamp)
		k.stamp++
		if !s.taken(k) {
			return
		}
	}
}

// taken says whether another known event has that name.
func (s *Sink) taken(k *known) bool {
	for _, other := range s.known {
		if other != k && other.name == k.name && other.namespace == k.namespace {
			return true
		}
	}
	return false
}

// nameOf is an event's name as in Kubernetes, cut where it would be too long
// for one.
func nameOf(about string, stamp int64) string {
	end := fmt.Sprintf(".%x", uint64(stamp))
	if most := validation.DNS1123SubdomainMaxLength - len(end); len(about) > most {
		about = strings.TrimRight(about[:most], "-.")
	}
	return about + end
}

// wall is the time of day at which something was, by what the clock shows
// now: a board without a clock of its own records its first events in 1970, and
// is connected when the clock has been set. Now is of the same clock as then,
// with its monotonic part.
func wall(then, now, clock time.Time) time.Time { return clock.Add(-now.Sub(then)) }

// objectOf is the object of an event.
func objectOf(e *event.Event, k *known, last time.Time, nodeName string) *v1.Event {
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

// patchOf is what changes when an event happens again: of a combined one the
// message, too.
func patchOf(e *event.Event, last time.Time) ([]byte, error) {
	patch := struct {
		Count         int         `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{Count: min(e.Count, 1<<30), LastTimestamp: metav1.Time{Time: last}}
	if strings.HasPrefix(e.Message, combined) {
		patch.Message = e.Message
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of an event: %w", err)
	}
	return data, nil
}
