package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// object writes an object of the local folder.
func (l *lab) object(name, text string) {
	l.t.Helper()
	if err := os.MkdirAll(l.cfg.Tinylet.ObjectsFolder, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.cfg.Tinylet.ObjectsFolder, name+".yaml"), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// stateOf is what a container of the pod does, in one word: its reason for
// waiting, running, or the reason of its end.
func stateOf(s v1.PodStatus, name string) string {
	for c := range pod.ContainerStatuses(&s) {
		switch {
		case c.Name != name:
		case c.State.Running != nil:
			return "running"
		case c.State.Waiting != nil:
			return c.State.Waiting.Reason
		case c.State.Terminated != nil:
			return c.State.Terminated.Reason
		}
	}
	return "unknown"
}

func condition(s v1.PodStatus, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return "absent"
}

func TestProbesDecide(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetExec("/ready", fake.Exec{Code: 1})
		l.runtime.SetExec("/alive", fake.Exec{})
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    readinessProbe: {exec: {command: [/ready]}, periodSeconds: 2}
    livenessProbe: {exec: {command: [/alive]}, periodSeconds: 5, failureThreshold: 2, terminationGracePeriodSeconds: 2}
`)[0]
		l.want(p)
		l.start()
		l.settle(20 * time.Second)
		if s := l.status(p.UID); stateOf(s, "main") != "running" || condition(s, v1.PodReady) != v1.ConditionFalse {
			t.Fatalf("before it is ready: %+v", s)
		}
		l.runtime.SetExec("/ready", fake.Exec{})
		l.settle(3 * time.Second)
		if s := l.status(p.UID); condition(s, v1.PodReady) != v1.ConditionTrue {
			t.Errorf("ready, and the condition says %+v", s.Conditions)
		}
		before := l.running()["probed-board/main"]
		l.runtime.SetExec("/alive", fake.Exec{Code: 1})
		l.settle(14 * time.Second)
		l.runtime.SetExec("/alive", fake.Exec{})
		l.settle(30 * time.Second)
		s := l.status(p.UID)
		if after := l.running()["probed-board/main"]; after == before || after == "" {
			t.Errorf("a container that is not alive was not restarted: %q, %q", before, after)
		}
		if s.ContainerStatuses[0].RestartCount != 1 || condition(s, v1.PodReady) != v1.ConditionTrue {
			t.Errorf("after the restart: %+v", s)
		}
		for _, want := range []string{"Unhealthy", "Killing"} {
			if !slices.Contains(l.reasons(p.Name), want) {
				t.Errorf("no event %s in %v", want, l.reasons(p.Name))
			}
		}
		// Idle, a probe is the only thing that the runtime is asked for.
		calls := l.changes()
		l.settle(10 * time.Minute)
		if n := l.changes() - calls; n != 0 {
			t.Errorf("%d changes while the probes pass", n)
		}
	})
}

const hooksManifest = `
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  terminationGracePeriodSeconds: 10
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    lifecycle:
      postStart: {exec: {command: [/post]}}
      preStop: {exec: {command: [/pre]}}
`

func TestHooks(t *testing.T) {
	for _, row := range []struct {
		name      string
		post, pre fake.Exec
		state     string
		stopped   time.Duration // the program does not react to the stop signal
	}{
		{name: "both pass", pre: fake.Exec{Delay: 3 * time.Second}, state: "running", stopped: 10 * time.Second},
		{name: "preStop hangs", pre: fake.Exec{Hang: true}, state: "running", stopped: 12 * time.Second},
		{name: "preStop fails", pre: fake.Exec{Code: 1}, state: "running", stopped: 10 * time.Second},
		{name: "postStart fails", post: fake.Exec{Code: 1}, state: "CrashLoopBackOff", stopped: 10 * time.Second},
		{name: "postStart hangs", post: fake.Exec{Hang: true}, state: "running", stopped: 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				l.runtime.SetExec("/post", row.post)
				l.runtime.SetExec("/pre", row.pre)
				p := parse(t, hooksManifest)[0]
				l.want(p)
				l.start()
				l.settle(31 * time.Second)
				if row.post.Hang {
					if n := len(l.running()); n != 1 {
						t.Errorf("%d run while the hook hangs", n)
					}
				} else if got := stateOf(l.status(p.UID), "main"); got != row.state {
					t.Errorf("main is %s, want %s", got, row.state)
				}
				begun := l.since()
				l.want()
				for l.since()-begun < time.Minute {
					l.settle(100 * time.Millisecond)
					if _, containers := l.objects(); containers == 0 {
						break
					}
				}
				if took := l.since() - begun; took < row.stopped-100*time.Millisecond || took > row.stopped+time.Second {
					t.Errorf("gone after %v, want %v", took, row.stopped)
				}
			})
		})
	}
}

func TestHookRunsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		runs := 0
		l.runtime.SetExec("/pre", fake.Exec{Delay: time.Second, Effect: func(string) { runs++ }})
		p := parse(t, strings.Replace(hooksManifest, "postStart: {exec: {command: [/post]}}", "", 1))[0]
		l.want(p)
		l.start()
		l.settle(10 * time.Second)
		l.runtime.Inject("StopContainer", fake.Fault{Err: os.ErrDeadlineExceeded, Times: 3})
		l.want()
		l.settle(time.Minute)
		if _, containers := l.objects(); containers != 0 || runs != 1 {
			t.Errorf("%d containers are left, the hook ran %d times", containers, runs)
		}
	})
}

func TestObjectsComeLater(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.cfg.Tinylet.ObjectsFolder = filepath.Join(l.cfg.Paths.Root, "objects")
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: configured}
spec:
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}]
    volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings, optional: true}}]
`)[0]
		l.want(p)
		l.start()
		l.settle(20 * time.Second)
		if got := stateOf(l.status(p.UID), "main"); got != "CreateContainerConfigError" {
			t.Fatalf("main is %s without its ConfigMap", got)
		}
		l.object("settings", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: green}\n")
		l.settle(30 * time.Second)
		if got := stateOf(l.status(p.UID), "main"); got != "running" {
			t.Fatalf("main is %s once its ConfigMap is there", got)
		}
		file := filepath.Join(l.cfg.Paths.Pods, string(p.UID), "volumes/kubernetes.io~configmap/settings/colour")
		if data, err := os.ReadFile(file); string(data) != "green" {
			t.Errorf("the volume has %q: %v", data, err)
		}
		// Run is not started in virtual time, so nothing tells of the change;
		// the next look at the pod brings it.
		l.object("settings", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n")
		l.agent.wakeups.Wake(p.UID)
		l.settle(time.Second)
		if data, err := os.ReadFile(file); string(data) != "blue" {
			t.Errorf("after a change the volume has %q: %v", data, err)
		}
	})
}

func TestAdmission(t *testing.T) {
	manifest := func(name, rest string) *v1.Pod {
		return parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n  terminationGracePeriodSeconds: 1\n"+rest)[0]
	}
	const port = `  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], ports: [{containerPort: 80, hostPort: 8080}]}]` + "\n"
	const elsewhere = `  nodeSelector: {kubernetes.io/hostname: elsewhere}` + "\n"
	bubble(t, func(t *testing.T, l *lab) {
		first, second, strayed := manifest("first", port), manifest("second", port), manifest("strayed", elsewhere+port)
		l.want(strayed, first, second)
		l.start()
		l.settle(10 * time.Second)
		for _, want := range []struct {
			pod    *v1.Pod
			phase  v1.PodPhase
			reason string
		}{{first, v1.PodRunning, ""}, {second, v1.PodFailed, "NodePorts"}, {strayed, v1.PodFailed, "NodeAffinity"}} {
			if s := l.status(want.pod.UID); s.Phase != want.phase || s.Reason != want.reason {
				t.Errorf("%s is %s %s, want %s %s", want.pod.Name, s.Phase, s.Reason, want.phase, want.reason)
			}
		}
		// What runs stays, though another order of the manifests would have
		// let the other one in.
		l.kill()
		l.wanted = []*v1.Pod{second, first}
		l.start()
		l.settle(10 * time.Second)
		if got := l.running(); len(got) != 1 || got["first-board/main"] == "" {
			t.Errorf("after a restart of the agent: %v", got)
		}
		// A place that is given up is free for the next, in one update.
		third := manifest("third", port)
		l.want(third)
		l.settle(20 * time.Second)
		if got := l.running(); len(got) != 1 || got["third-board/main"] == "" {
			t.Errorf("after the change: %v, %+v", got, l.status(third.UID))
		}
	})
}

func TestCriticalPodPreempts(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.cfg.Kubelet.MaxPods = 2
		plain := func(name string) *v1.Pod { return shell(t, name, "Always", "sleep infinity") }
		a, b, critical := plain("a"), plain("b"), plain("critical")
		l.start()
		// Pods of the API server are not critical.
		l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{a, b}})
		l.settle(10 * time.Second)
		l.want(critical)
		l.settle(30 * time.Second)
		if got := l.running(); len(got) != 2 || got["critical-board/c0"] == "" {
			t.Fatalf("running: %v; critical is %+v", got, l.status(critical.UID))
		}
		preempted := 0
		for _, p := range []*v1.Pod{a, b} {
			if s := l.status(p.UID); s.Phase == v1.PodFailed && s.Reason == "Preempting" {
				preempted++
			}
		}
		// The agent forgets whom it preempted, and still has no room for them.
		l.kill()
		l.start()
		l.settle(time.Second)
		l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{a, b}})
		l.settle(30 * time.Second)
		if got := l.running(); len(got) != 2 || got["critical-board/c0"] == "" {
			t.Errorf("after a restart of the agent: %v", got)
		}
		if preempted != 1 {
			t.Errorf("%d pods were preempted: %+v, %+v", preempted, l.status(a.UID), l.status(b.UID))
		}
	})
}

func TestVolumeOverItsLimit(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], volumeMounts: [{name: scratch, mountPath: /scratch}]}]
  volumes: [{name: scratch, emptyDir: {sizeLimit: 64Ki}}]
`)[0]
		l.want(p)
		l.start()
		l.settle(2 * time.Minute)
		if s := l.status(p.UID); s.Phase != v1.PodRunning {
			t.Fatalf("within its limit: %+v", s)
		}
		file := filepath.Join(l.cfg.Paths.Pods, string(p.UID), "volumes/kubernetes.io~empty-dir/scratch/data")
		if err := os.WriteFile(file, make([]byte, 128<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		l.settle(2 * time.Minute)
		s := l.status(p.UID)
		if s.Phase != v1.PodFailed || s.Reason != "Evicted" || !strings.Contains(s.Message, `"scratch" exceeds the limit "64Ki"`) {
			t.Errorf("over its limit: %s %s %q", s.Phase, s.Reason, s.Message)
		}
		if len(l.running()) != 0 {
			t.Errorf("running: %v", l.running())
		}
		metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, l.agent.syncer.WriteMetrics, upstreams[0]), "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1\n")
	})
}

func TestSidecars(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetExec("/up", fake.Exec{Code: 1})
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: with}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: proxy, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], restartPolicy: Always, startupProbe: {exec: {command: [/up]}, periodSeconds: 1, failureThreshold: 100}}
  - {name: prepare, image: "localhost/busybox:1", command: [sh, -c, "exit 0"]}
  containers:
  - {name: job, image: "localhost/busybox:1", command: [sh, -c, "sleep 20; exit 0"]}
`)[0]
		l.want(p)
		l.start()
		l.settle(10 * time.Second)
		if s := l.status(p.UID); stateOf(s, "proxy") != "running" || stateOf(s, "prepare") != "PodInitializing" {
			t.Errorf("before the sidecar has started: %s, %s", stateOf(s, "proxy"), stateOf(s, "prepare"))
		}
		l.runtime.SetExec("/up", fake.Exec{})
		l.settle(10 * time.Second)
		if s := l.status(p.UID); s.Phase != v1.PodRunning || stateOf(s, "job") != "running" {
			t.Errorf("with the sidecar started: %+v", s)
		}
		l.settle(time.Minute)
		if s := l.status(p.UID); s.Phase != v1.PodSucceeded || len(l.running()) != 0 {
			t.Errorf("when the job is done: %s, running %v", s.Phase, l.running())
		}
	})
}

// TestProbesCostNothingElse sees that a probe which passes asks the runtime
// for itself and nothing more.
func TestProbesCostNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetExec("/alive", fake.Exec{Delay: 30 * time.Millisecond})
		l.start()
		l.settle(time.Second) // events have a subscriber before there are any: the pods are not listed again and again
		l.want(parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    readinessProbe: {exec: {command: [/alive]}}
    livenessProbe: {exec: {command: [/alive]}}
`)...)
		l.settle(30 * time.Second)
		probes, calls := l.runtime.Count("ExecSync"), l.runtime.Count()
		l.settle(10 * time.Minute)
		probes, calls = l.runtime.Count("ExecSync")-probes, l.runtime.Count()-calls
		// The heartbeat of the runtime's health is one call a minute.
		if probes < 118 || probes > 122 || calls-probes > 20 {
			t.Errorf("%d probes, %d other calls in ten minutes", probes, calls-probes)
		}
	})
}

// TestCallsOfALife holds what one pod's start and end ask of the runtime: on a
// board, who waits for a pod waits for each of these calls.
func TestCallsOfALife(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		calls := func(wanted []*v1.Pod, until string, want ...string) {
			t.Helper()
			before := len(l.runtime.Calls())
			l.want(wanted...)
			l.settle(20 * time.Second)
			var got []string
			for _, c := range l.runtime.Calls()[before:] {
				got = append(got, c.Method)
			}
			got = got[:slices.Index(got, until)+1] // then come looks at what the runtime tells
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		}
		l.start()
		l.settle(time.Second) // events have a subscriber: a runtime that connects later is asked again what it is, with the next pod
		first := shell(t, "first", "Always", "sleep 100000")
		l.want(first)
		l.settle(time.Minute)
		calls([]*v1.Pod{first, shell(t, "web", "Always", "sleep 100000")}, "ContainerStatus",
			"ListPodSandbox", "ListContainers", "RunPodSandbox", "PodSandboxStatus",
			"ImageStatus", "CreateContainer", "StartContainer", "ContainerStatus")

		before := len(l.runtime.Calls())
		l.want(first)
		l.settle(20 * time.Second)
		counts := make(map[string]int)
		for _, c := range l.runtime.Calls()[before:] {
			counts[c.Method]++
		}
		// The look beside the stop of the sandbox may find it ready still.
		if counts["PodSandboxStatus"] <= 1 {
			delete(counts, "PodSandboxStatus")
		}
		// One list of each kind is the worker's last look, one is for what has
		// to be removed, one is the relist's.
		want := map[string]int{
			"StopContainer": 1, "StopPodSandbox": 1, "ListPodSandbox": 3, "ListContainers": 3, "ContainerStatus": 1, "RemovePodSandbox": 1,
		}
		if d := cmp.Diff(want, counts); d != "" {
			t.Errorf("the end of a pod (-want +got):\n%s", d)
		}
	})
}

// TestLogOfTheRunningContainer sees that the status names the log that the
// running container writes to, whatever containers and logs a power cut took.
func TestLogOfTheRunningContainer(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "cut", "Always", "sleep infinity")
		folder := filepath.Join(l.cfg.Paths.PodLogs, "default_cut-board_"+string(p.UID), "c0")
		l.want(p)
		for i := range 12 {
			l.start()
			l.settle(10 * time.Minute)
			l.kill()
			l.runtime.Reboot()
			// The next container is made and not started when the power goes.
			l.runtime.Inject("StartContainer", fake.Fault{Err: os.ErrDeadlineExceeded, Times: 1 + i%3})
			l.start()
			l.settle(3 * time.Second)
			l.kill()
			l.runtime.Reboot()
			logs, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for j, log := range logs { // a folder's latest entries are lost
				if i%2 == 1 && j >= len(logs)-1-i%3 {
					if err := os.Remove(filepath.Join(folder, log.Name())); err != nil {
						t.Fatal(err)
					}
				}
			}
			l.start()
			l.settle(10 * time.Minute)
			shown := l.status(p.UID).ContainerStatuses[0]
			if shown.State.Running == nil {
				t.Fatalf("round %d: %+v", i, shown)
			}
			for _, c := range l.runtime.AllContainers() {
				if c.GetId() == pod.ContainerID(&shown) && int(c.GetMetadata().GetAttempt()) != int(shown.RestartCount) {
					t.Errorf("round %d: the status says %d restarts, the container is number %d", i, shown.RestartCount, c.GetMetadata().GetAttempt())
				}
			}
			l.kill()
		}
	})
}

// TestRebootsWithInitContainers sees that an init container which did its work
// does not wait as if it had crashed, however often the power goes.
func TestRebootsWithInitContainers(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := parse(t, webManifest)[0]
		l.want(p)
		for i := range 6 {
			l.start()
			l.settle(20 * time.Second)
			if s := l.status(p.UID); stateOf(s, "server") != "running" {
				t.Errorf("boot %d: prepare is %s, server is %s after 20 s", i, stateOf(s, "prepare"), stateOf(s, "server"))
			}
			l.kill()
			l.runtime.Reboot()
		}
	})
}

// TestStopFailureOfOneContainer sees that a container which cannot be stopped
// interrupts no hook beside it.
func TestStopFailureOfOneContainer(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetExec("/pre", fake.Exec{Delay: 3 * time.Second})
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 8
  containers:
  - {name: plain, image: "localhost/busybox:1", command: [sh, -c, sleep infinity]}
  - {name: hooked, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], lifecycle: {preStop: {exec: {command: [/pre]}}}}
`)[0]
		l.want(p)
		l.start()
		l.settle(10 * time.Second)
		l.runtime.Inject("StopContainer", fake.Fault{Err: os.ErrDeadlineExceeded, Times: 1})
		l.want()
		l.settle(time.Minute)
		if _, containers := l.objects(); containers != 0 || l.runtime.Count("ExecSync") != 1 {
			t.Errorf("%d containers are left, the hook was begun %d times", containers, l.runtime.Count("ExecSync"))
		}
	})
}
