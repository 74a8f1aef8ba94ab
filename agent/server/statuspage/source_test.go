package statuspage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/server/local"
)

func TestPodSeverity(t *testing.T) {
	for _, tt := range []struct {
		phase  v1.PodPhase
		status string
		ready  int
		want   Severity
	}{
		{v1.PodRunning, "Running", 1, Good},
		{v1.PodRunning, "Running", 0, Busy},
		{v1.PodRunning, "NotReady", 1, Busy},
		{v1.PodRunning, "Terminating", 1, Busy},
		{v1.PodRunning, "CrashLoopBackOff", 0, Bad},
		{v1.PodRunning, "Completed", 0, Busy},
		{v1.PodPending, "Pending", 0, Busy},
		{v1.PodPending, "ContainerCreating", 0, Busy},
		{v1.PodPending, "Init:0/1", 0, Busy},
		{v1.PodPending, "Init:CrashLoopBackOff", 0, Bad},
		{v1.PodPending, "Init:Signal:9", 0, Bad},
		{v1.PodPending, "ImagePullBackOff", 0, Bad},
		{v1.PodPending, "ErrImageNeverPull", 0, Bad},
		{v1.PodPending, "InvalidImageName", 0, Bad},
		{v1.PodPending, "CreateContainerConfigError", 0, Bad},
		{v1.PodSucceeded, "Completed", 0, Over},
		{v1.PodFailed, "Evicted", 0, Bad},
	} {
		p := &v1.Pod{}
		p.Status.Phase = tt.phase
		if got := podSeverity(p, &pod.Summary{Status: tt.status, Ready: tt.ready, Total: 1}); got != tt.want {
			t.Errorf("%s, %s, %d ready: %s, want %s", tt.phase, tt.status, tt.ready, got, tt.want)
		}
	}
}

func TestConditionHealth(t *testing.T) {
	var got []string
	for _, c := range withHealth([]local.Condition{
		{Type: "Ready", Status: "True"}, {Type: "Ready", Status: "False"},
		{Type: "MemoryPressure", Status: "False"}, {Type: "MemoryPressure", Status: "True"},
		{Type: "DiskPressure", Status: "Unknown"},
	}) {
		if c.Good {
			got = append(got, c.Type+" "+c.Status)
		}
	}
	if diff := cmp.Diff([]string{"Ready True", "MemoryPressure False"}, got); diff != "" {
		t.Errorf("good (-want +got):\n%s", diff)
	}
}

func TestRecentEvents(t *testing.T) {
	var all []event.Event
	for i := range maxEvents + 5 {
		all = append(all, event.Event{Type: v1.EventTypeWarning, Reason: "R", Count: i})
	}
	all = append(all, event.Event{Pod: pod.Ref{UID: "1", Namespace: "a", Name: "b"}, Type: v1.EventTypeNormal, Reason: "Last"})
	got := recentEvents(all)
	if len(got) != maxEvents || got[0].Reason != "Last" || got[0].Pod != "a/b" || got[0].Warning || !got[1].Warning || got[1].Pod != "" || got[1].Count != maxEvents+4 {
		t.Errorf("%d events, %+v", len(got), got[:2])
	}
	if got := recentEvents(nil); len(got) != 0 {
		t.Errorf("of none: %+v", got)
	}
}
