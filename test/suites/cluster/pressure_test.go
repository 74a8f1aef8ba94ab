//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

// eats is a container that takes MiB by MiB up to so many, and then holds them.
func eats(mib int, pause string) string {
	return fmt.Sprintf("(i=0; while [ $i -lt %[1]d ]; do head -c 1m /dev/zero; i=$((i+1)); sleep %[2]s; done; sleep 100000) | tail -c %[1]dm", mib, pause)
}

// onNode is a pod that is put on the node by its name, past the scheduler, so
// that the node itself has to decide.
func onNode(pod, resources, script string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  nodeName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 20
  containers: [{name: main, image: %q, command: [sh, -c, %q], resources: {%s}}]
---
`, pod, pod, name, board.BusyboxImage, script, resources)
}

// reactions are how long decisions took from the kernel's sign, by the agent's
// log.
var reactions = regexp.MustCompile(`msg="evicted pod" .*pod=(\S+) .*signal=(\S+) .*sinceTrigger=(\S+)`)

// stays are the resources of the pod that is to stay. The OCI runtime starts a
// container within the limits of its pod, and runc takes seconds of an emulated
// processor: with 50m a pod ran after two minutes.
const stays = "requests: {cpu: 500m, memory: 60Mi}, limits: {cpu: 500m, memory: 60Mi}"

// TestMemoryPressure runs a board of 256 MB out of memory, again and again,
// beside a pod that has all that it asked for. EVICTION_MEMORY_MB is another
// size.
func TestMemoryPressure(t *testing.T) {
	l := prepareLab(t)
	l.vm = l.bootMemory(l.joinFiles(l.bootstrap()), int(board.Number(t, "EVICTION_MEMORY_MB", 256)))
	l.sh(`printf 'evictionPressureTransitionPeriod: 5s\n' >> /etc/tinylet/config.yaml && ` + l.service("restart"))
	l.until("the node is Ready", l.nodeReady)
	t.Log(l.sh("tinylet check | grep -i -A1 eviction; free -m; grep -E 'MemAvailable|Mlocked' /proc/meminfo"))
	l.c.Apply(t, onNode("kept", stays, eats(40, "0.01")))
	l.until("the pod that is to stay runs", func() string { return l.running("app=kept", 1) })
	l.until("it has its working set", func() string {
		if used := l.sh("cat " + group(l.pod("kept")) + "/memory.current"); len(used) < 8 {
			return used
		}
		return ""
	})
	l.until("the code of an eviction is locked", func() string {
		if log := l.sh(l.agentLog()); !strings.Contains(log, "locked the code of an eviction") {
			return "not yet"
		}
		return ""
	})
	memory := l.sh(`awk '/^(MemAvailable|Mlocked):/ {print $2}' /proc/meminfo`)
	t.Logf("with one pod, kB available and locked: %q", memory)
	if kB := strings.Fields(memory); len(kB) != 2 || kB[1] == "0" || len(kB[1]) > 4 || kB[1] > "6144" && len(kB[1]) == 4 {
		t.Errorf("kB available and locked: %q, want something locked, and at most 6144", memory)
	}
	before, programs, ready := restarts(l.pods("app=kept")), l.programs(), l.readySince()
	for round := range int(board.Number(t, "EVICTION_ROUNDS", 3)) {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { l.with(t).runOut(round) })
		if now := restarts(l.pods("app=kept")); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("round %d: the pod with all that it asked for was %v and is %v", round, before, now)
		}
		if now := l.programs(); now != programs {
			t.Fatalf("round %d: agent and containerd were %s and are %s", round, programs, now)
		}
		if now := l.readySince(); now != ready {
			t.Fatalf("round %d: the node was Ready since %s, and is since %s", round, ready, now)
		}
	}
	if killed := l.sh("grep -h oom_kill " + group(l.pod("kept")) + "/memory.events"); strings.Contains(killed, "oom_kill 1") {
		t.Errorf("the kernel killed in the pod that was to stay: %s", killed)
	}
	l.reacted()
}

// TestMemoryPressureWithoutRuntime has a pod take all memory while the runtime
// hangs: it is ended all the same, and its end is told once the runtime answers.
func TestMemoryPressureWithoutRuntime(t *testing.T) {
	l := prepareLab(t)
	l.vm = l.bootMemory(l.joinFiles(l.bootstrap()), int(board.Number(t, "EVICTION_MEMORY_MB", 256)))
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, onNode("hog", "", eats(400, "0.1")))
	l.until("the pod runs", func() string { return l.running("app=hog", 1) })
	events := group(l.pod("hog")) + "/cgroup.events"
	l.sh("kill -STOP $(pidof containerd)")
	l.until("nothing of the pod lives", func() string {
		if got := l.sh("cat " + events); !strings.Contains(got, "populated 0") {
			return got
		}
		return ""
	})
	l.sh("kill -CONT $(pidof containerd)")
	l.until("it is told", func() string {
		p := l.pod("hog")
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" {
			return string(p.Status.Phase) + " " + p.Status.Reason
		}
		return ""
	})
	if log := l.sh(l.agentLog()); !strings.Contains(log, "kill overdue pod without the runtime") {
		t.Error("the log does not tell of it")
	}
	l.c.Must(t, "delete", "pod", "hog", "--wait=true", "--timeout=4m")
}

// TestMemoryPressureWithoutPSI runs out of memory where the kernel tells of no
// pressure: what pods come to, and who is awake anyway, are the signs then.
func TestMemoryPressureWithoutPSI(t *testing.T) {
	l := prepareLab(t)
	l.cmdline = "psi=0"
	l.vm = l.bootMemory(l.joinFiles(l.bootstrap()), int(board.Number(t, "EVICTION_MEMORY_MB", 256)))
	l.sh("[ ! -e /proc/pressure ] && printf 'evictionPressureTransitionPeriod: 5s\n' >> /etc/tinylet/config.yaml && " + l.service("restart"))
	l.until("the node is Ready", l.nodeReady)
	if log := l.sh(l.agentLog()); !strings.Contains(log, "CONFIG_PSI=y and psi=1") {
		t.Errorf("the log does not tell of the missing pressure:\n%s", log)
	}
	l.c.Apply(t, onNode("kept", stays, eats(40, "0.01")))
	l.until("the pod that is to stay runs", func() string { return l.running("app=kept", 1) })
	before, programs := restarts(l.pods("app=kept")), l.programs()
	l.runOut(0)
	if now := restarts(l.pods("app=kept")); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the pod with all that it asked for was %v and is %v", before, now)
	}
	if now := l.programs(); now != programs {
		t.Errorf("agent and containerd were %s and are %s", programs, now)
	}
}

// TestTaskPressure has a pod take the node's process IDs.
func TestTaskPressure(t *testing.T) {
	l := newLab(t)
	l.sh(`echo 900 > /proc/sys/kernel/threads-max; printf 'evictionHard: {pid.available: "400"}\n' >> /etc/tinylet/config.yaml && ` + l.service("restart"))
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, onNode("few", "", "sleep 100000")+onNode("many", "", "for i in $(seq 400); do sleep 100000 & done; wait"))
	l.until("the pod with most processes is evicted", func() string {
		p := l.pod("many")
		if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, "The node was low on resource: pids. ") {
			return string(p.Status.Phase) + " " + p.Status.Reason + " " + p.Status.Message
		}
		return ""
	})
	l.until("the node is under pressure", func() string { return l.conditionIs(corev1.NodePIDPressure, corev1.ConditionTrue) })
	if problem := l.running("app=few", 1); problem != "" {
		t.Errorf("the other pod: %s", problem)
	}
	l.c.Must(t, "delete", "pod", "few", "many", "--wait=true", "--timeout=4m")
}

// runOut has a pod without requests and one that takes more than it asked for
// take all memory, until both have ended for it.
func (l lab) runOut(round int) {
	hog, leaker := fmt.Sprintf("hog-%d", round), fmt.Sprintf("leaker-%d", round)
	l.c.Apply(l.T, onNode(hog, "", eats(400, "0.1"))+onNode(leaker, "requests: {cpu: 10m, memory: 16Mi}", eats(400, "0.3")))
	for _, pod := range []string{hog, leaker} {
		l.until(pod+" has ended for its memory", func() string {
			var p corev1.Pod
			l.c.Get(l.T, &p, "pod", pod)
			if p.Status.Phase != corev1.PodFailed {
				return string(p.Status.Phase) + " " + waiting(&p)
			}
			l.Logf("%s: %s %q %s", pod, p.Status.Reason, p.Status.Message, endings(&p))
			switch {
			case p.Status.Reason == "Evicted" && strings.HasPrefix(p.Status.Message, "The node was low on resource: memory. "):
				if !disrupted(&p) {
					l.Errorf("%s: no DisruptionTarget in %+v", pod, p.Status.Conditions)
				}
			case strings.Contains(endings(&p), "OOMKilled"):
			default:
				l.Errorf("%s failed with reason %q: %q, %s", pod, p.Status.Reason, p.Status.Message, endings(&p))
			}
			return ""
		})
	}
	l.c.Must(l.T, "delete", "pod", hog, leaker, "--wait=true", "--timeout=4m")
	l.until("the node has enough memory again", func() string { return l.conditionIs(corev1.NodeMemoryPressure, corev1.ConditionFalse) })
}

// endings are the reasons for which containers of a pod have ended.
func endings(p *corev1.Pod) string {
	var out []string
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			out = append(out, s.State.Terminated.Reason)
		}
	}
	return strings.Join(out, " ")
}

func disrupted(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" {
			return true
		}
	}
	return false
}

// bootMemory is bootWith for a board with so many MB of memory.
func (l lab) bootMemory(files []board.File, mb int) *board.VM {
	l.Helper()
	l.memoryMB = mb
	return l.bootWith(files)
}

// programs are the processes that nothing may end.
func (l lab) programs() string {
	l.Helper()
	return "tinylet " + strings.TrimSpace(l.sh("echo "+agentPID)) + ", containerd " + strings.TrimSpace(l.sh("pidof containerd"))
}

// readySince is since when the Node has been Ready; it fails if it is not.
func (l lab) readySince() string {
	l.Helper()
	var n corev1.Node
	l.c.Get(l.T, &n, "node", name)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status != corev1.ConditionTrue {
				l.Errorf("the node is not Ready: %s %s", c.Reason, c.Message)
			}
			return c.LastTransitionTime.UTC().Format(time.RFC3339)
		}
	}
	return "never"
}

// conditionIs says what a condition of the node is instead of wanted.
func (l lab) conditionIs(kind corev1.NodeConditionType, wanted corev1.ConditionStatus) string {
	l.Helper()
	var n corev1.Node
	l.c.Get(l.T, &n, "node", name)
	for _, c := range n.Status.Conditions {
		if c.Type == kind && c.Status != wanted {
			return string(kind) + " " + string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// reacted tells how long decisions took from the kernel's sign, against their
// budget. An eviction that follows another has no sign of its own.
func (l lab) reacted() {
	l.Helper()
	var all []time.Duration
	for _, m := range reactions.FindAllStringSubmatch(l.sh(l.agentLog()), -1) {
		took, err := time.ParseDuration(m[3])
		if err != nil {
			l.Fatal(err)
		}
		l.Logf("%s evicted for %s: decided %v after the sign", m[1], m[2], took)
		all = append(all, took)
	}
	if len(all) == 0 {
		l.Fatal("no eviction was decided after a sign of the kernel")
	}
	slices.Sort(all)
	over := 0
	for _, took := range all {
		if took > time.Second {
			over++
		}
	}
	l.Logf("%d decisions after a sign: half of them within %v, the last %v (budget 1 s), %d later than that", len(all), all[len(all)/2], all[len(all)-1], over)
}
