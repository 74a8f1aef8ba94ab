// Package podtest has pods for tests.
package podtest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mixed returns a pod a/NAME with a container in each state: app runs, done and silent have exited,
// pulls and waits wait, odd runs without an ID, and new has no status.
func Mixed(name string, uid types.UID, created time.Time) (*v1.Pod, v1.PodStatus) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(created)},
		Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "app", Image: "app:1"}, {Name: "done"}, {Name: "pulls"}, {Name: "waits"}, {Name: "new"}, {Name: "odd"}, {Name: "silent"},
		}},
	}
	return p, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{Name: "app", ContainerID: "fake://app-" + string(uid), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "done", ContainerID: "fake://done", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}}},
		{Name: "pulls", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
		{Name: "waits", State: v1.ContainerState{}},
		{Name: "silent", ContainerID: "fake://silent", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 4}}},
		{Name: "odd", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
}
