package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// withContainers gives the pod containers in those states; one that runs is
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
		name   string
		pod    []change
		worker string
		want   summary
	}{
		{name: "nothing known", want: summary{Status: "Pending"}},
		{name: "pending", pod: []change{phase(v1.PodPending)}, want: summary{Status: "Pending"}},
		{name: "creating", pod: []change{phase(v1.PodPending), withContainers(waiting("ContainerCreating"))}, want: summary{Total: 1, Status: "ContainerCreating"}},
		{name: "running", pod: []change{phase(v1.PodRunning), withContainers(running, running)}, want: summary{Ready: 2, Total: 2, Status: "Running"}},
		{
			name: "one crashes", pod: []change{phase(v1.PodRunning), withContainers(running, waiting("CrashLoopBackOff")), restarted(1, 3, now)},
			want: summary{Ready: 1, Total: 2, Status: "CrashLoopBackOff", Restarts: 3, LastRestart: now},
		},
		{
			name: "newest restart counts", pod: []change{phase(v1.PodRunning), withContainers(running, running), restarted(0, 1, now), restarted(1, 1, now.Add(-time.Hour))},
			want: summary{Ready: 2, Total: 2, Status: "Running", Restarts: 2, LastRestart: now},
		},
		{name: "image", pod: []change{phase(v1.PodPending), withContainers(waiting("ImagePullBackOff"))}, want: summary{Total: 1, Status: "ImagePullBackOff"}},
		{name: "first of several reasons", pod: []change{phase(v1.PodPending), withContainers(waiting("ErrImagePull"), waiting("ContainerCreating"))}, want: summary{Total: 2, Status: "ErrImagePull"}},
		{name: "completed", pod: []change{phase(v1.PodSucceeded), withContainers(done)}, want: summary{Total: 1, Status: "Completed"}},
		{name: "error", pod: []change{phase(v1.PodFailed), withContainers(ended("Error", 1))}, want: summary{Total: 1, Status: "Error"}},
		{name: "exit code alone", pod: []change{phase(v1.PodFailed), withContainers(ended("", 7))}, want: summary{Total: 1, Status: "ExitCode:7"}},
		{name: "signal alone", pod: []change{phase(v1.PodFailed), withContainers(signalled(9))}, want: summary{Total: 1, Status: "Signal:9"}},
		{
			name: "one completed, one runs", pod: []change{phase(v1.PodRunning), withContainers(done, running), condition(v1.PodReady, v1.ConditionTrue)},
			want: summary{Ready: 1, Total: 2, Status: "Running"},
		},
		{
			name: "one completed, one runs, pod not ready", pod: []change{phase(v1.PodRunning), withContainers(done, running), condition(v1.PodReady, v1.ConditionFalse)},
			want: summary{Ready: 1, Total: 2, Status: "NotReady"},
		},
		{name: "evicted", pod: []change{phase(v1.PodFailed), reason("Evicted"), withContainers(), func(p *v1.Pod) { p.Spec.Containers = make([]v1.Container, 2) }}, want: summary{Total: 2, Status: "Evicted"}},
		{name: "rejected", pod: []change{phase(v1.PodFailed), reason("UnsupportedField")}, want: summary{Status: "UnsupportedField"}},

		{name: "first init waits", pod: []change{phase(v1.PodPending), withInit(waiting("PodInitializing"), waiting("PodInitializing")), withContainers(waiting("PodInitializing"))}, want: summary{Total: 1, Status: "Init:0/2"}},
		{name: "second init runs", pod: []change{phase(v1.PodPending), withInit(done, running), withContainers(waiting("PodInitializing"))}, want: summary{Total: 1, Status: "Init:1/2"}},
		{name: "init crashes", pod: []change{phase(v1.PodPending), withInit(waiting("CrashLoopBackOff")), withContainers(waiting("PodInitializing"))}, want: summary{Total: 1, Status: "Init:CrashLoopBackOff"}},
		{name: "init failed", pod: []change{phase(v1.PodPending), withInit(ended("Error", 1))}, want: summary{Status: "Init:Error"}},
		{name: "init exit code", pod: []change{phase(v1.PodPending), withInit(ended("", 1))}, want: summary{Status: "Init:ExitCode:1"}},
		{name: "init signal", pod: []change{phase(v1.PodPending), withInit(signalled(15))}, want: summary{Status: "Init:Signal:15"}},
		{name: "init done", pod: []change{phase(v1.PodPending), withInit(done), withContainers(waiting("PodInitializing"))}, want: summary{Total: 1, Status: "PodInitializing"}},
		{
			name: "init restarts count only until it is done",
			pod: []change{phase(v1.PodRunning), withInit(done), withContainers(running), func(p *v1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 5
			}},
			want: summary{Ready: 1, Total: 1, Status: "Running"},
		},
		{
			name: "init restarts count while it goes on",
			pod: []change{phase(v1.PodPending), withInit(running), func(p *v1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 5
			}},
			want: summary{Status: "Init:0/1", Restarts: 5},
		},
		{name: "sidecar", pod: []change{phase(v1.PodRunning), withSidecar(running, 2), withContainers(running)}, want: summary{Ready: 2, Total: 2, Status: "Running", Restarts: 2}},
		{name: "sidecar starts", pod: []change{phase(v1.PodPending), withSidecar(waiting("PodInitializing"), 0), withContainers(waiting("PodInitializing"))}, want: summary{Total: 2, Status: "Init:0/1"}},
		{
			name: "initialized pod whose init containers are gone",
			pod:  []change{phase(v1.PodRunning), withInit(waiting("PodInitializing")), withContainers(running), condition(v1.PodInitialized, v1.ConditionTrue)},
			want: summary{Ready: 1, Total: 1, Status: "Init:0/1"},
		},

		{name: "deleted", pod: []change{phase(v1.PodRunning), withContainers(running), deleted}, want: summary{Ready: 1, Total: 1, Status: "Terminating"}},
		{name: "stopped by the agent", pod: []change{phase(v1.PodRunning), withContainers(running)}, worker: "terminating", want: summary{Ready: 1, Total: 1, Status: "Terminating"}},
		{name: "deleted when done", pod: []change{phase(v1.PodSucceeded), withContainers(done), deleted}, worker: "terminating", want: summary{Total: 1, Status: "Completed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{}
			for _, c := range tt.pod {
				c(p)
			}
			if diff := cmp.Diff(tt.want, summarize(p, tt.worker)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAge(t *testing.T) {
	boot := 10 * time.Minute
	epoch := time.Unix(30, 0)
	tests := []struct {
		name      string
		then      time.Time
		up        time.Duration
		want      string
		wantOfRun string // of what cannot be older than the boot
	}{
		{"never", time.Time{}, boot, "-", "-"},
		{"now", now, boot, "0s", "0s"},
		{"rounding of two clocks", now.Add(time.Second), boot, "0s", "0s"},
		{"minutes", now.Add(-5 * time.Minute), boot, "5m", "5m"},
		{"before the boot", now.Add(-72 * time.Hour), boot, "3d", "10m"},
		{"clock was set back", now.Add(time.Hour), boot, "?", "?"},
		{"clock was not set yet", epoch, boot, "10m", "10m"},
		{"clock was not set yet, uptime unknown", epoch, 0, "?", "?"},
		{"uptime unknown", now.Add(-72 * time.Hour), 0, "3d", "3d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := age(tt.then, now, tt.up); got != tt.want {
				t.Errorf("age = %q, want %q", got, tt.want)
			}
			if got := ageThisBoot(tt.then, now, tt.up); got != tt.wantOfRun {
				t.Errorf("ageThisBoot = %q, want %q", got, tt.wantOfRun)
			}
		})
	}
	t.Run("the clock itself is not set", func(t *testing.T) {
		if got := age(time.Unix(10, 0), time.Unix(70, 0), boot); got != "60s" {
			t.Errorf("age = %q", got)
		}
	})
}

func TestMemory(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "-", 1: "1Ki", 1 << 10: "1Ki", 1<<20 - 1: "1024Ki", 1 << 20: "1.0Mi", 5<<20 + 300<<10: "5.3Mi",
		10 << 20: "10Mi", 1 << 30: "1024Mi", 10 << 30: "10Gi", 1 << 50: "1048576Gi",
	} {
		if got := memory(bytes); got != want {
			t.Errorf("memory(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestPick(t *testing.T) {
	names := []podName{{"default", "web"}, {"default", "web-2"}, {"kube-system", "dns"}, {"kube-system", "web"}, {"default", "db-1"}, {"default", "db-1"}}
	tests := []struct {
		arg  string
		want int
		err  string
	}{
		{arg: "default/web", want: 0},
		{arg: "kube-system/web", want: 3},
		{arg: "web-2", want: 1},
		{arg: "web-", want: 1},
		{arg: "d", err: "default/db-1, default/web, default/web-2, kube-system/dns"},
		{arg: "dns", want: 2},
		{arg: "kube-system/d", want: 2},
		{arg: "db", want: 4},
		{arg: "web", err: "default/web, kube-system/web"},
		{arg: "eb", err: `no pod is named "eb"`},
		{arg: "", err: "no pod"},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			got, err := pick(names, tt.arg)
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("pick = %d, %v", got, err)
				}
				return
			}
			var e *ExitError
			if !errors.As(err, &e) || e.Code != codeNotFound || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestUptimeGrows(t *testing.T) {
	a := uptime()
	if b := uptime(); a <= 0 || b < a {
		t.Errorf("uptime %v, then %v", a, b)
	}
}
