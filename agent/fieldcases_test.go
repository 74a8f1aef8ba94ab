package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
)

// docs/dev/field-cases.md lists these tests with the reports that they are of.

// ofAPI makes pods those of the API server.
func (l *lab) ofAPI(pods ...*v1.Pod) {
	l.api = true
	for _, p := range pods {
		p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceAPI}
	}
}

// deletedWithin is the pod after its deletion with a grace period.
func deletedWithin(p *v1.Pod, seconds int64) *v1.Pod {
	gone := p.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(seconds) * time.Second)}
	gone.DeletionGracePeriodSeconds = &seconds
	return gone
}

// A pod is deleted again with a shorter grace period.
func TestShorterGraceCounts(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "stubborn", "Always", "sleep infinity")
		l.ofAPI(p)
		l.want(p)
		l.start()
		l.settle(10 * time.Second)
		l.want(deletedWithin(p, 600))
		l.settle(20 * time.Second)
		if len(l.running()) != 1 {
			t.Fatal("it has ended before its grace period")
		}
		l.want(deletedWithin(p, 3))
		l.settle(5 * time.Second)
		if len(l.running()) != 0 {
			t.Error("it runs on after the shorter grace period")
		}
	})
}

// A postStart hook hangs in a pod that is deleted.
func TestDeletionBreaksAHookOff(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetExec("/post", fake.Exec{Hang: true})
		p := shell(t, "hooked", "Always", "sleep infinity")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/post"}}}}
		l.ofAPI(p)
		l.want(p)
		l.start()
		l.settle(time.Minute)
		if len(l.running()) != 1 {
			t.Fatalf("running: %v", l.running())
		}
		l.want(deletedWithin(p, 3))
		l.settle(6 * time.Second)
		if len(l.running()) != 0 || len(l.agent.evictable.Unfinished()) != 0 {
			t.Errorf("after the grace period running: %v, not over: %d pods", l.running(), len(l.agent.evictable.Unfinished()))
		}
	})
}

// A pod whose pull hangs is deleted.
func TestDeletionEndsAPull(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("PullImage", fake.Fault{Hang: true})
		p, web := shell(t, "pulls", "Always", "sleep infinity"), shell(t, "web", "Always", "sleep infinity")
		p.Spec.Containers[0].Image = "localhost/none:1"
		l.want(p, web)
		l.start()
		l.settle(30 * time.Second)
		if st := l.status(web.UID); st.Phase != v1.PodRunning {
			t.Errorf("another pod is %s while it pulls", st.Phase)
		}
		l.want(web)
		l.settle(5 * time.Second)
		if st := l.status(p.UID); st.Phase != "" {
			t.Errorf("the deleted pod is still %s", st.Phase)
		}
	})
}

// activeDeadlineSeconds ends a pod that never came to run.
func TestDeadlineOfAPendingPod(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("PullImage", fake.Fault{Err: os.ErrNotExist})
		p := shell(t, "pulls", "Never", "sleep infinity")
		p.Spec.Containers[0].Image = "localhost/none:1"
		deadline := int64(30)
		p.Spec.ActiveDeadlineSeconds = &deadline
		l.want(p)
		l.start()
		l.settle(25 * time.Second)
		if st := l.status(p.UID); st.Phase != v1.PodPending {
			t.Fatalf("before the deadline it is %s", st.Phase)
		}
		l.settle(15 * time.Second)
		if st := l.status(p.UID); st.Phase != v1.PodFailed || st.Reason != "DeadlineExceeded" {
			t.Errorf("after the deadline it is %s, %s", st.Phase, st.Reason)
		}
	})
}

// All main containers crash beside a sidecar.
func TestMainsCrashBesideASidecar(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "crashes", "Always", "sleep 1; exit 1", "sleep 1; exit 2")
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "side", Image: busybox, Command: []string{"sh", "-c", "sleep infinity"}, RestartPolicy: &always}}
		l.want(p)
		l.start()
		l.settle(5 * time.Second)
		side := l.running()["crashes-board/side"]
		l.settle(5 * time.Minute)
		st := l.status(p.UID)
		for _, name := range []string{"c0", "c1"} {
			if c := pod.FindContainerStatus(&st, name); c == nil || c.RestartCount < 3 {
				t.Errorf("%s was not started again and again: %+v", name, c)
			}
		}
		if now := l.running()["crashes-board/side"]; side == "" || now != side {
			t.Errorf("the sidecar was %q and is %q", side, now)
		}
	})
}

// The sandbox of a pod with init containers is lost.
func TestLostSandboxRunsAllInits(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: inits}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: first, image: "localhost/busybox:1", command: [sh, -c, exit 0]}
  - {name: second, image: "localhost/busybox:1", command: [sh, -c, exit 0]}
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, sleep infinity], volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {}}]
`)[0]
		l.want(p)
		l.start()
		l.settle(20 * time.Second)
		kept := filepath.Join(l.cfg.Paths.Pods, string(p.UID), "volumes/kubernetes.io~empty-dir/v/kept")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		lost := ""
		for _, s := range l.runtime.AllSandboxes() {
			lost = s.GetId()
		}
		l.runtime.KillSandbox(lost)
		l.settle(2 * time.Minute)
		order := map[string]int64{}
		for _, c := range l.runtime.AllContainers() {
			if at := c.GetStartedAt(); at > order[c.GetMetadata().GetName()] {
				order[c.GetMetadata().GetName()] = at
			}
		}
		first, second, main := order["first"], order["second"], order["main"]
		if st := l.status(p.UID); stateOf(st, "main") != "running" || first > second || second > main {
			t.Errorf("main is %s, started at %d, after %d and %d", stateOf(st, "main"), main, first, second)
		}
		made := 0
		for _, c := range l.runtime.Calls("StartContainer") {
			if c.Err == nil {
				made++
			}
		}
		if made != 6 {
			t.Errorf("%d containers were started, want three twice", made)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("the emptyDir was not kept: %v", err)
		}
	})
}

// A manifest is moved out of the folder and back.
func TestManifestComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "web", "Always", "sleep infinity")
		for _, away := range []time.Duration{time.Second, time.Minute} {
			l.want(p)
			if l.stop == nil {
				l.start()
			}
			l.settle(20 * time.Second)
			before := l.running()["web-board/c0"]
			l.want()
			l.settle(away)
			l.want(p)
			l.settle(time.Minute)
			if st := l.status(p.UID); l.running()["web-board/c0"] == "" || condition(st, v1.PodReady) != v1.ConditionTrue {
				t.Errorf("away for %v: runs %v, was %s, %+v", away, l.running(), before, st)
			}
		}
	})
}

// Containers end while no agent runs.
func TestEndsWhileTheAgentIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		good, bad := shell(t, "good", "OnFailure", "sleep 30; exit 0"), shell(t, "bad", "Never", "sleep 30; exit 7")
		again := shell(t, "again", "OnFailure", "sleep 30; exit 3")
		l.want(good, bad, again)
		l.start()
		l.settle(15 * time.Second)
		started := l.runtime.Count("StartContainer")
		l.kill()
		l.settle(time.Minute)
		l.start()
		l.settle(15 * time.Second)
		if st := l.status(good.UID); st.Phase != v1.PodSucceeded {
			t.Errorf("what ended well is %s", st.Phase)
		}
		if st := l.status(bad.UID); st.Phase != v1.PodFailed || st.ContainerStatuses[0].State.Terminated.ExitCode != 7 {
			t.Errorf("what ended with 7: %+v", st)
		}
		st := l.status(again.UID)
		if c := st.ContainerStatuses[0]; c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("what is to be restarted: %+v", c)
		}
		if n := l.runtime.Count("StartContainer") - started; n != 1 {
			t.Errorf("%d containers were started, want that one", n)
		}
	})
}

// A host port is free again when its pod is gone.
func TestHostPortIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		with := func(name string) *v1.Pod {
			p := shell(t, name, "Always", "sleep infinity")
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}}
			return p
		}
		first, second, third := with("first"), with("second"), with("third")
		l.want(first)
		l.start()
		l.settle(10 * time.Second)
		l.want(first, second)
		l.settle(10 * time.Second)
		if st := l.status(second.UID); st.Phase != v1.PodFailed || st.Reason != "NodePorts" {
			t.Errorf("the later one: %s, %s", st.Phase, st.Reason)
		}
		l.want(second)
		l.settle(10 * time.Second)
		l.want(second, third)
		l.settle(10 * time.Second)
		if st := l.status(third.UID); st.Phase != v1.PodRunning {
			t.Errorf("when the port is free: %s, %s", st.Phase, st.Message)
		}
	})
}

// A container may be restarted by its exit code.
func TestRestartsByExitCode(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: codes}
spec:
  restartPolicy: Never
  containers:
  - name: again
    image: "localhost/busybox:1"
    command: [sh, -c, sleep 1; exit 42]
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
  - name: ends
    image: "localhost/busybox:1"
    command: [sh, -c, sleep 1; exit 1]
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
`)[0]
		l.want(p)
		l.start()
		l.settle(2 * time.Minute)
		st := l.status(p.UID)
		again, ends := pod.FindContainerStatus(&st, "again"), pod.FindContainerStatus(&st, "ends")
		if st.Phase != v1.PodRunning || again.RestartCount < 2 || ends.RestartCount != 0 || ends.State.Terminated == nil {
			t.Errorf("%s: restarts %d and %d", st.Phase, again.RestartCount, ends.RestartCount)
		}
	})
}

// A file of a ConfigMap's volume is lost on the disk.
func TestLostFileIsWrittenAgain(t *testing.T) {
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
    command: [sh, -c, sleep 30; exit 1]
    volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
`)[0]
		l.object("settings", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: green}\n")
		l.want(p)
		l.start()
		l.settle(20 * time.Second)
		volume := filepath.Join(l.cfg.Paths.Pods, string(p.UID), "volumes/kubernetes.io~configmap/settings")
		file, err := filepath.EvalSymlinks(filepath.Join(volume, "colour"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute) // it has ended, and started again
		st := l.status(p.UID)
		data, err := os.ReadFile(filepath.Join(volume, "colour"))
		if string(data) != "green" || st.ContainerStatuses[0].RestartCount == 0 {
			t.Errorf("after %d restarts it has %q, %v", st.ContainerStatuses[0].RestartCount, data, err)
		}
	})
}
