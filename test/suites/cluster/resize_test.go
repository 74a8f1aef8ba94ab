//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestResize asks the API server for other sizes of pods that run, and reads
// in the board's cgroup files what became of it.
func TestResize(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, resizable)
	l.until("the pods run", func() string { return l.running("size=any", 4) })
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"up and down", lab.resizeUpAndDown},
		{"with a restart", lab.resizeWithRestart},
		{"of the pod as a whole", lab.resizeWhole},
		{"below what is used", lab.resizeBelowUse},
		{"deferred", lab.resizeDeferred},
		{"over a restart of the agent", lab.resizeAcrossAgents},
		{"infeasible", lab.resizeInfeasible},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) })
	}
}

const resizable = `apiVersion: v1
kind: Pod
metadata: {name: live, labels: {size: any}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "exec sleep 100000"]
    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: anew, labels: {size: any}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "exec sleep 100000"]
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {size: any}}
spec:
  terminationGracePeriodSeconds: 2
  resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}
  containers:
  - {name: main, image: localhost/busybox:1, command: [sh, -c, "exec sleep 100000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: full, labels: {size: any}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "head -c 24000000 /dev/zero > /dev/shm/used; exec sleep 100000"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 200m, memory: 48Mi}}
`

// resize asks for other amounts of the container main.
func (l lab) resize(pod, cpuRequest, memoryRequest, cpuLimit, memoryLimit string) {
	l.Helper()
	l.c.Must(l.T, "patch", "pod", pod, "--subresource=resize", "--patch", fmt.Sprintf(
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`,
		cpuRequest, memoryRequest, cpuLimit, memoryLimit))
}

func (l lab) pod(name string) *corev1.Pod {
	l.Helper()
	var p corev1.Pod
	l.c.Get(l.T, &p, "pod", name)
	return &p
}

// limits are cpu.max and memory.max of a pod's cgroup and of its container's.
func (l lab) limits(p *corev1.Pod) string {
	l.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return strings.Join(strings.Fields(l.sh(fmt.Sprintf(
		`cd %s && cat cpu.max memory.max *%s*/cpu.max *%[2]s*/memory.max`, group(p), id))), " ")
}

// resized says what is missing until the pod has the limits, shows them and
// has no resize left.
func (l lab) resized(name, files, shows string) string {
	p := l.pod(name)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			return fmt.Sprintf("%s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
	r := p.Status.ContainerStatuses[0].Resources
	if r == nil {
		return "no resources are shown"
	}
	if got := fmt.Sprintf("%v %v %v %v", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory()); got != shows {
		return "it shows " + got
	}
	if got := l.limits(p); got != files {
		return "its files say " + got
	}
	return ""
}

// condition is that of a pod's resize, as type=reason.
func (l lab) resizeCondition(name string) string {
	for _, c := range l.pod(name).Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			return fmt.Sprintf("%s=%s", c.Type, c.Reason)
		}
	}
	return ""
}

const (
	smallFiles = "20000 100000 33554432 20000 100000 33554432"
	largeFiles = "40000 100000 67108864 40000 100000 67108864"
	smallShown = "100m 16Mi 200m 32Mi"
	largeShown = "200m 32Mi 400m 64Mi"
)

func (l lab) resizeUpAndDown() {
	was := restarts(l.pods("size=any"))
	l.resize("live", "200m", "32Mi", "400m", "64Mi")
	l.until("it has grown", func() string { return l.resized("live", largeFiles, largeShown) })
	l.resize("live", "100m", "16Mi", "200m", "32Mi")
	l.until("it has shrunk", func() string { return l.resized("live", smallFiles, smallShown) })
	for id, now := range restarts(l.pods("size=any")) {
		if was[id] != now {
			l.Errorf("%s was %s and is %s", id, was[id], now)
		}
	}
	l.until("the events are told", func() string {
		got := l.c.Must(l.T, "get", "events", "--field-selector=involvedObject.name=live", "--output=jsonpath={.items[*].reason}")
		for _, want := range []string{"ResizeStarted", "ResizeCompleted"} {
			if !strings.Contains(got, want) {
				return got
			}
		}
		return ""
	})
}

func (l lab) resizeWithRestart() {
	l.resize("anew", "200m", "16Mi", "400m", "32Mi")
	l.until("its cpu has grown", func() string {
		return l.resized("anew", "40000 100000 33554432 40000 100000 33554432", "200m 16Mi 400m 32Mi")
	})
	if n := l.pod("anew").Status.ContainerStatuses[0].RestartCount; n != 0 {
		l.Errorf("%d restarts for cpu", n)
	}
	l.resize("anew", "200m", "32Mi", "400m", "64Mi")
	l.until("it has grown", func() string { return l.resized("anew", largeFiles, largeShown) })
	if n := l.pod("anew").Status.ContainerStatuses[0].RestartCount; n != 1 {
		l.Errorf("%d restarts for memory, want 1", n)
	}
}

func (l lab) resizeWhole() {
	l.c.Must(l.T, "patch", "pod", "whole", "--subresource=resize", "--patch",
		`{"spec":{"resources":{"requests":{"cpu":"200m","memory":"32Mi"},"limits":{"cpu":"400m","memory":"64Mi"}}}}`)
	l.until("the pod's cgroup has grown", func() string {
		if got := l.limits(l.pod("whole")); got != largeFiles {
			return got
		}
		return l.resizeCondition("whole")
	})
}

func (l lab) resizeBelowUse() {
	l.until("it has its memory", func() string {
		p := l.pod("full")
		if used := strings.TrimSpace(l.sh(fmt.Sprintf("cat %s/memory.current", group(p)))); len(used) < 8 || used < "24000000" {
			return used + " bytes"
		}
		return ""
	})
	was := l.limits(l.pod("full"))
	l.resize("full", "50m", "16Mi", "200m", "20Mi")
	l.until("it is refused", func() string {
		if got := l.resizeCondition("full"); got != "PodResizeInProgress=Error" {
			return "condition " + got
		}
		return ""
	})
	if got := l.limits(l.pod("full")); got != was {
		l.Errorf("its files were %s and say %s", was, got)
	}
	l.c.Must(l.T, "exec", "full", "--", "rm", "/dev/shm/used")
	l.until("it has shrunk", func() string {
		return l.resized("full", "20000 100000 20971520 20000 100000 20971520", "50m 16Mi 200m 20Mi")
	})
}

// resizeDeferred asks for more than there is while another pod has it.
func (l lab) resizeDeferred() {
	var node corev1.Node
	l.c.Get(l.T, &node, "node", name)
	all := node.Status.Allocatable.Cpu().MilliValue()
	l.c.Apply(l.T, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: large, labels: {size: large}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: localhost/busybox:1, command: [sh, -c, "exec sleep 100000"], resources: {requests: {cpu: %dm}}}
`, all/2))
	l.until("the other pod runs", func() string { return l.running("size=large", 1) })
	cpu := fmt.Sprintf("%dm", all/2)
	l.resize("live", cpu, "16Mi", cpu, "32Mi")
	l.until("it is put off", func() string {
		if got := l.resizeCondition("live"); got != "PodResizePending=Deferred" {
			return "condition " + got
		}
		return ""
	})
	if got := l.limits(l.pod("live")); got != smallFiles {
		l.Errorf("its files say %s", got)
	}
	l.c.Must(l.T, "delete", "pod", "large")
	quota := all / 2 * 100
	if l.systemd { // has whole percents of a CPU
		quota = (quota + 999) / 1000 * 1000
	}
	files := fmt.Sprintf("%[1]d 100000 33554432 %[1]d 100000 33554432", quota)
	l.until("it has grown", func() string {
		written := resource.MustParse(cpu) // as the API writes it
		return l.resized("live", files, fmt.Sprintf("%[1]v 16Mi %[1]v 32Mi", &written))
	})
	l.resize("live", "100m", "16Mi", "200m", "32Mi")
	l.until("it has shrunk", func() string { return l.resized("live", smallFiles, smallShown) })
}

// resizeAcrossAgents asks for more while no agent is there.
func (l lab) resizeAcrossAgents() {
	was := restarts(l.pods("size=any"))
	l.sh(l.service("stop"))
	l.resize("live", "200m", "32Mi", "400m", "64Mi")
	if got := l.limits(l.pod("live")); got != smallFiles {
		l.Errorf("without an agent its files say %s", got)
	}
	l.sh(l.service("start"))
	l.until("it has grown", func() string { return l.resized("live", largeFiles, largeShown) })
	for id, now := range restarts(l.pods("size=any")) {
		if was[id] != now {
			l.Errorf("%s was %s and is %s", id, was[id], now)
		}
	}
}

// resizeInfeasible asks for more CPU of a pod that has one for itself. More
// than the node has at all the API server refuses by itself.
func (l lab) resizeInfeasible() {
	l.c.Must(l.T, "delete", "pods", "--selector=size=any", "--timeout=2m")
	l.sh(`printf 'cpuManagerPolicy: static\nreservedSystemCPUs: "0"\n' >> /etc/tinylet/config.yaml && ` + l.service("restart"))
	l.until("a CPU is reserved", func() string {
		var node corev1.Node
		l.c.Get(l.T, &node, "node", name)
		if cpu := node.Status.Allocatable.Cpu().String(); cpu != "1" {
			return "allocatable " + cpu
		}
		return l.nodeReady()
	})
	l.c.Apply(l.T, `apiVersion: v1
kind: Pod
metadata: {name: bound, labels: {size: bound}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "exec sleep 100000"]
    resources: {requests: {cpu: 1, memory: 32Mi}, limits: {cpu: 1, memory: 32Mi}}
`)
	l.until("the pod runs", func() string { return l.running("size=bound", 1) })
	was := l.limits(l.pod("bound"))
	l.resize("bound", "500m", "32Mi", "500m", "32Mi")
	l.until("it is refused", func() string {
		for _, c := range l.pod("bound").Status.Conditions {
			if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible {
				l.Log(c.Message)
				return ""
			}
		}
		return "condition " + l.resizeCondition("bound")
	})
	if got := l.limits(l.pod("bound")); got != was {
		l.Errorf("its files were %s and say %s", was, got)
	}
	l.resize("bound", "1", "32Mi", "1", "32Mi")
	l.until("it is as it was", func() string { return l.resized("bound", was, "1 32Mi 1 32Mi") })
}
