package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// now is the time at which these tests evaluate pods.
var now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

// Parts of pods.
var (
	running = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	done    = ended("Completed", 0)
)

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func ended(reason string, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: code}}
}

func signalled(signal int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Signal: signal, ExitCode: 128 + signal}}
}

type change func(*v1.Pod)

// withContainers sets the containers of the pod to those states. A running one is
// ready.
func withContainers(states ...v1.ContainerState) change {
	return func(p *v1.Pod) {
		for i, s := range states {
			name := string(rune('a' + i))
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, State: s, Ready: s.Running != nil})
		}
	}
}

func withInit(states ...v1.ContainerState) change {
	return func(p *v1.Pod) {
		for i, s := range states {
			name := "init-" + string(rune('a'+i))
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name})
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{Name: name, State: s})
		}
	}
}

func withSidecar(state v1.ContainerState, restarts int32) change {
	return func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "sidecar", RestartPolicy: &always})
		started := state.Running != nil
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{
			Name: "sidecar", State: state, Started: &started, Ready: started, RestartCount: restarts,
		})
	}
}

func phase(phase v1.PodPhase) change { return func(p *v1.Pod) { p.Status.Phase = phase } }

func condition(kind v1.PodConditionType, status v1.ConditionStatus) change {
	return func(p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: status})
	}
}

func restarted(container int, n int32, at time.Time) change {
	return func(p *v1.Pod) {
		c := &p.Status.ContainerStatuses[container]
		c.RestartCount = n
		c.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}
	}
}

func reason(reason string) change { return func(p *v1.Pod) { p.Status.Reason = reason } }

func deleted(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

func TestSummarize(t *testing.T) {
	tests := []struct {
		name     string
		pod      []change
		stopping bool
		want     Summary
	}{
		{name: "nothing known", want: Summary{Status: "Pending"}},
		{name: "pending", pod: []change{phase(v1.PodPending)}, want: Summary{Status: "Pending"}},
		{name: "creating", pod: []change{phase(v1.PodPending), withContainers(waiting("ContainerCreating"))}, want: Summary{Total: 1, Status: "ContainerCreating"}},
		{name: "running", pod: []change{phase(v1.PodRunning), withContainers(running, running)}, want: Summary{Ready: 2, Total: 2, Status: "Running"}},
		{
			name: "one crashes", pod: []change{phase(v1.PodRunning), withContainers(running, waiting("CrashLoopBackOff")), restarted(1, 3, now)},
			want: Summary{Ready: 1, Total: 2, Status: "CrashLoopBackOff", Restarts: 3, LastRestart: now},
		},
		{
			name: "newest restart counts", pod: []change{phase(v1.PodRunning), withContainers(running, running), restarted(0, 1, now), restarted(1, 1, now.Add(-time.Hour))},
			want: Summary{Ready: 2, Total: 2, Status: "Running", Restarts: 2, LastRestart: now},
		},
		{name: "image", pod: []change{phase(v1.PodPending), withContainers(waiting("ImagePullBackOff"))}, want: Summary{Total: 1, Status: "ImagePullBackOff"}},
		{name: "first of several reasons", pod: []change{phase(v1.PodPending), withContainers(waiting("ErrImagePull"), waiting("ContainerCreating"))}, want: Summary{Total: 2, Status: "ErrImagePull"}},
		{name: "completed", pod: []change{phase(v1.PodSucceeded), withContainers(done)}, want: Summary{Total: 1, Status: "Completed"}},
		{name: "error", pod: []change{phase(v1.PodFailed), withContainers(ended("Error", 1))}, want: Summary{Total: 1, Status: "Error"}},
		{name: "exit code alone", pod: []change{phase(v1.PodFailed), withContainers(ended("", 7))}, want: Summary{Total: 1, Status: "ExitCode:7"}},
		{name: "signal alone", pod: []change{phase(v1.PodFailed), withContainers(signalled(9))}, want: Summary{Total: 1, Status: "Signal:9"}},
		{
			name: "one completed, one runs", pod: []change{phase(v1.PodRunning), withContainers(done, running), condition(v1.PodReady, v1.ConditionTrue)},
			want: Summary{Ready: 1, Total: 2, Status: "Running"},
		},
		{
			name: "one completed, one runs, pod not ready", pod: []change{phase(v1.PodRunning), withContainers(done, running), condition(v1.PodReady, v1.ConditionFalse)},
			want: Summary{Ready: 1, Total: 2, Status: "NotReady"},
		},
		{name: "evicted", pod: []change{phase(v1.PodFailed), reason("Evicted"), withContainers(), func(p *v1.Pod) { p.Spec.Containers = make([]v1.Container, 2) }}, want: Summary{Total: 2, Status: "Evicted"}},
		{name: "rejected", pod: []change{phase(v1.PodFailed), reason("UnsupportedField")}, want: Summary{Status: "UnsupportedField"}},

		{name: "first init waits", pod: []change{phase(v1.PodPending), withInit(waiting("PodInitializing"), waiting("PodInitializing")), withContainers(waiting("PodInitializing"))}, want: Summary{Total: 1, Status: "Init:0/2"}},
		{name: "second init runs", pod: []change{phase(v1.PodPending), withInit(done, running), withContainers(waiting("PodInitializing"))}, want: Summary{Total: 1, Status: "Init:1/2"}},
		{name: "init crashes", pod: []change{phase(v1.PodPending), withInit(waiting("CrashLoopBackOff")), withContainers(waiting("PodInitializing"))}, want: Summary{Total: 1, Status: "Init:CrashLoopBackOff"}},
		{name: "init failed", pod: []change{phase(v1.PodPending), withInit(ended("Error", 1))}, want: Summary{Status: "Init:Error"}},
		{name: "init exit code", pod: []change{phase(v1.PodPending), withInit(ended("", 1))}, want: Summary{Status: "Init:ExitCode:1"}},
		{name: "init signal", pod: []change{phase(v1.PodPending), withInit(signalled(15))}, want: Summary{Status: "Init:Signal:15"}},
		{name: "init done", pod: []change{phase(v1.PodPending), withInit(done), withContainers(waiting("PodInitializing"))}, want: Summary{Total: 1, Status: "PodInitializing"}},
		{
			name: "init restarts count only until it is done",
			pod: []change{phase(v1.PodRunning), withInit(done), withContainers(running), func(p *v1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 5
			}},
			want: Summary{Ready: 1, Total: 1, Status: "Running"},
		},
		{
			name: "init restarts count while it goes on",
			pod: []change{phase(v1.PodPending), withInit(running), func(p *v1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 5
			}},
			want: Summary{Status: "Init:0/1", Restarts: 5},
		},
		{name: "sidecar", pod: []change{phase(v1.PodRunning), withSidecar(running, 2), withContainers(running)}, want: Summary{Ready: 2, Total: 2, Status: "Running", Restarts: 2}},
		{name: "sidecar starts", pod: []change{phase(v1.PodPending), withSidecar(waiting("PodInitializing"), 0), withContainers(waiting("PodInitializing"))}, want: Summary{Total: 2, Status: "Init:0/1"}},
		{
			name: "initialized pod whose init containers are gone",
			pod:  []change{phase(v1.PodRunning), withInit(waiting("PodInitializing")), withContainers(running), condition(v1.PodInitialized, v1.ConditionTrue)},
			want: Summary{Ready: 1, Total: 1, Status: "Init:0/1"},
		},

		{name: "deleted", pod: []change{phase(v1.PodRunning), withContainers(running), deleted}, want: Summary{Ready: 1, Total: 1, Status: "Terminating"}},
		{name: "stopped by the agent", pod: []change{phase(v1.PodRunning), withContainers(running)}, stopping: true, want: Summary{Ready: 1, Total: 1, Status: "Terminating"}},
		{name: "deleted when done", pod: []change{phase(v1.PodSucceeded), withContainers(done), deleted}, stopping: true, want: Summary{Total: 1, Status: "Completed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{}
			for _, c := range tt.pod {
				c(p)
			}
			if diff := cmp.Diff(tt.want, Summarize(p, tt.stopping)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
