//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const (
	ended = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 3
      containers: [{name: web, image: "localhost/busybox:1", command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: critical, labels: {app: critical}}
spec:
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 3
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]}]
`
	lateComer = `apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  nodeName: ` + name + `
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "localhost/busybox:1", command: [sleep, "100000"]}]
`
)

// TestShutdown takes the node down as people and init systems do.
func TestShutdown(t *testing.T) {
	l := newLab(t)
	l.sh(`printf 'shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n' >> /etc/tinylet/config.yaml && /etc/init.d/S50tinylet restart`)
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, ended)
	l.until("three replicas run", func() string { return l.running("app=web", 3) })
	l.until("the critical pod runs", func() string { return l.running("app=critical", 1) })
	before := l.pods("app=web")

	out := l.sh("time tinylet drain-local 2>&1")
	t.Logf("tinylet drain-local: %s", out)
	if !strings.Contains(out, "all pods have terminated") || !strings.Contains(out, "4 remaining") {
		t.Errorf("drain-local says %q", out)
	}
	// At this moment the API server has heard of it: nothing is waited for.
	var newest time.Time
	for _, p := range before {
		var now corev1.Pod
		l.c.Get(t, &now, "pod", p.Name)
		if now.Status.Phase != corev1.PodFailed || now.Status.Reason != "Terminated" || now.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s: %s %s %q", p.Name, now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		if at := endOf(&now); at.After(newest) {
			newest = at
		}
	}
	var critical corev1.Pod
	l.c.Get(t, &critical, "pod", "critical")
	if critical.Status.Phase != corev1.PodFailed || critical.Status.Reason != "Terminated" || endOf(&critical).Before(newest) {
		t.Errorf("the critical pod: %s %s, ended %v, the others until %v", critical.Status.Phase, critical.Status.Reason, endOf(&critical), newest)
	}
	l.until("the node says why it is not Ready", func() string {
		if got := l.nodeReady(); !strings.Contains(got, "node is shutting down") {
			return got
		}
		return ""
	})
	l.c.Apply(t, lateComer)
	l.until("a pod that comes meanwhile is refused", func() string {
		var late corev1.Pod
		l.c.Get(t, &late, "pod", "late")
		if late.Status.Phase != corev1.PodFailed || late.Status.Reason != "NodeShutdown" {
			return fmt.Sprintf("%s %s", late.Status.Phase, late.Status.Reason)
		}
		return ""
	})
	l.sh("tinylet drain-local --cancel")
	l.until("the node is Ready again", l.nodeReady)
	l.until("new replicas run", func() string { return l.succeeded("app=web", 3) })

	// Without uplink nobody hears of the end: the same pods run after the
	// reboot.
	names := sorted(l.onBoard("web-"))
	l.c.Partition(t, name)
	off := time.Now()
	l.sh("poweroff")
	select {
	case <-l.vm.Ended():
		t.Logf("the board is off after %.1f s", time.Since(off).Seconds())
	case <-time.After(patience):
		t.Fatal("the board does not power off")
	}
	l.vm = l.boot(nil)
	log := l.sh("cat /var/log/tinylet.log")
	for _, want := range []string{"node shutdown requested", "terminated pods for node shutdown", "nodeShutdown=true"} {
		if !strings.Contains(log, want) {
			t.Errorf("tinylet's log of the shutdown does not say %q", want)
		}
	}
	l.until("three pods run without the cluster", func() string {
		n := 0
		for _, phase := range l.onBoard("web-") {
			if phase == "Running 1/1" {
				n++
			}
		}
		if n != 3 {
			return fmt.Sprintf("%d run", n)
		}
		return ""
	})
	if diff := cmp.Diff(names, sorted(l.onBoard("web-"))); diff != "" {
		t.Errorf("pods (-before +after the reboot):\n%s", diff)
	}
	l.c.Heal(t, name)
	l.until("the node is Ready with its cluster", l.nodeReady)
	l.until("the same replicas run", func() string { return l.succeeded("app=web", 3) })
	for _, e := range l.c.Refused(t) {
		t.Errorf("the cluster refused %+v", e)
	}
}

// succeeded is running for pods some of whose forerunners have failed.
func (l lab) succeeded(selector string, want int) string {
	l.Helper()
	n := 0
	for _, p := range l.pods(selector) {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && ready(&p) {
			n++
		}
	}
	if n == want {
		return ""
	}
	return fmt.Sprintf("%d of %d run", n, want)
}

// endOf is when the pod's container ended.
func endOf(p *corev1.Pod) time.Time {
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			return s.State.Terminated.FinishedAt.Time
		}
	}
	return time.Time{}
}
