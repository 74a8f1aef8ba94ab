//go:build board

package standalone

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// hostileMemory is what the agent's anonymous memory stays below, in MB.
const hostileMemory = 16

// Sizes of what the hostile containers make.
const (
	hostileFiles  = 100_000
	hostileLevels = 600
)

// hostilePods are pods that put as much as they can into what the agent reads.
var hostilePods = map[string]string{
	// A line without end, in one container that runs on and one that crashes,
	// whose message comes from its log.
	"line": `
apiVersion: v1
kind: Pod
metadata: {name: line}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: endless, image: busybox, resources: {limits: {cpu: 500m}}, command: [sh, -c, "cat /dev/zero | tr '\\0' x"]}
  - {name: crash, image: busybox, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "head -c 40000000 /dev/zero | tr '\\0' y; exit 1"]}
`,
	// Answers of 16 MB to HTTP probes.
	"body": `
apiVersion: v1
kind: Pod
metadata: {name: body}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: www, emptyDir: {}}]
  containers:
  - name: c
    image: busybox
    command: [sh, -c, "head -c 16000000 /dev/zero > /www/big; exec httpd -f -p 8080 -h /www"]
    volumeMounts: [{name: www, mountPath: /www}]
    readinessProbe: {httpGet: {port: 8080, path: /big}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 100}
    livenessProbe: {httpGet: {port: 8080, path: /big}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 100}
`,
	// A command of a probe that prints 16 MB and succeeds.
	"print": `
apiVersion: v1
kind: Pod
metadata: {name: print}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox
    command: [sleep, "1000000"]
    readinessProbe: {exec: {command: [head, -c, "16000000", /dev/zero]}, periodSeconds: 5, timeoutSeconds: 60}
`,
	// A command of a probe that leaves a child with its output.
	"child": `
apiVersion: v1
kind: Pod
metadata: {name: child}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox
    command: [sleep, "1000000"]
    readinessProbe: {exec: {command: [sh, -c, "sleep 1000000 & true"]}, periodSeconds: 5, timeoutSeconds: 1}
`,
	// A termination message of as much as the disk takes.
	"message": `
apiVersion: v1
kind: Pod
metadata: {name: message}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: busybox, command: [sh, -c, "head -c 60000000 /dev/zero | tr '\\0' m > /dev/termination-log; exit 1"]}
`,
}

const hostileObjects = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-many}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  local: {path: /var/tmp/e2e/many}
  claimRef: {name: many, namespace: default}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [board]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: many, namespace: default}
spec: {volumeName: pv-many, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// manyFiles is a pod with a claim that it gives to a group; its container fills
// the claim unless that was done.
func manyFiles(name string, group int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: %d}
  volumes: [{name: v, persistentVolumeClaim: {claimName: many}}]
  containers:
  - name: c
    image: busybox
    command:
    - sh
    - -c
    - |
      if [ ! -e /v/done ]; then
        mkdir /v/wide && cd /v/wide && seq 1 %d | xargs touch
        cd /v; i=0; while [ $i -lt %d ]; do mkdir d && cd d && i=$((i+1)) || exit 1; done
        touch deepest /v/done
      fi
      exec sleep 1000000
    volumeMounts: [{name: v, mountPath: /v}]
`, name, group, hostileFiles, hostileLevels)
}

// TestHostile runs containers that put as much as they can into whatever the
// agent reads of them, on a board of 256 MB: the agent's memory stays bounded,
// and a Guaranteed pod is untouched.
func TestHostile(t *testing.T) {
	if os.Getenv("BOARD_HOSTILE") == "" {
		t.Skip("ten minutes of load: make test-hostile runs it, with BOARD_HOSTILE set")
	}
	n := boot(t, board.VMOptions{MemoryMB: 256, Files: []board.File{
		{Path: imagesDir + "/program.tar", Mode: 0o644, Data: programArchive(t)},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(strings.Replace(podConfig, "containerLogMaxSize: 20Ki", "containerLogMaxSize: 1Mi", 1))},
		{Path: objectsDir + "/many.yaml", Mode: 0o600, Data: []byte(hostileObjects)},
	}})
	n.sh("mkdir -p %s/many", sharedDir)
	n.Log(n.sh("df -h /; df -i /; free"))
	n.put("kept.yaml", manifest(takesMemory("kept", 10, "resources: {requests: {cpu: 50m, memory: 30Mi}, limits: {cpu: 50m, memory: 30Mi}}")))
	n.pod("kept").status("Running")
	kept, programs := n.tasks(), n.programs()
	w := &watched{node: n, pid: strconv.Itoa(n.status().PID)}

	t.Run("100,000 files and 600 levels", w.step(manyFilesAgain))
	t.Run("output without end", w.step(outputWithoutEnd))
	t.Run("output of commands", w.step(outputOfCommands))

	now := n.tasks()
	for id, pid := range kept {
		if now[id] != pid {
			t.Errorf("container %s of the Guaranteed pod was %s and is %q", id, pid, now[id])
		}
	}
	if d, err := n.pod("kept").document(); err != nil || d.Restarts != 0 || d.Status != "Running" {
		t.Errorf("the Guaranteed pod: %+v, %v", d, err)
	}
	if now := n.programs(); now != programs {
		t.Errorf("agent and containerd were %s and are %s", programs, now)
	}
	t.Logf("budget: anonymous memory of the agent beside hostile containers: at most %.1f MB of %d MB", w.most, hostileMemory)
}

// watched is a node whose agent's memory is looked at.
type watched struct {
	node
	pid  string
	most float64
}

func (w *watched) step(test func(*watched)) func(*testing.T) {
	return func(t *testing.T) {
		outer := w.node
		defer func() { w.node = outer }()
		w.node = outer.with(t)
		test(w)
	}
}

// look reads the agent's anonymous memory.
func (w *watched) look() {
	w.Helper()
	now := w.memory(w.pid, "RssAnon")
	w.most = max(w.most, now)
	if now >= hostileMemory {
		w.Errorf("%.1f MB of anonymous memory, want less than %d", now, hostileMemory)
	}
}

// until waits for a pod and looks at the agent's memory meanwhile.
func (w *watched) until(name, what string, limit time.Duration, cond func(*cli.DescriptionDocument) string) {
	w.Helper()
	p := w.pod(name)
	start := time.Now()
	for {
		w.look()
		d, err := p.document()
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = cond(d)
		}
		if wrong == "" {
			w.Logf("%s: %s (after %.0f s)", name, what, time.Since(start).Seconds())
			return
		}
		if time.Since(start) > limit {
			w.Fatalf("%s: want %s; seen after %s: %s\n%s", name, what, limit, wrong, p.describe())
		}
		w.breathe(start)
	}
}

// manyFilesAgain fills a claim and gives it to the group of another pod.
func manyFilesAgain(w *watched) {
	running := func(d *cli.DescriptionDocument) string {
		if d.Status != "Running" {
			return d.Status
		}
		return ""
	}
	w.put("many.yaml", manifest(manyFiles("many", 4321)))
	w.until("many", "it runs", patience, running)
	done := func(*cli.DescriptionDocument) string {
		return w.sh("[ -e %s/many/done ] || find %s/many/wide | wc -l", sharedDir, sharedDir)
	}
	w.until("many", "the claim is full", 3*patience, done)
	w.pod("many").remove()
	w.pod("many").gone()
	start := time.Now()
	w.put("again.yaml", manifest(manyFiles("again", 4322)))
	w.until("again", "it runs with the claim of another group", 2*patience, running)
	w.Logf("%d files were given to a group and a pod with them started in %.0f s", hostileFiles, time.Since(start).Seconds())
	deepest := strings.Repeat("d/", hostileLevels) + "deepest"
	if got := w.sh("cd %s/many && stat -c %%g wide/1 wide/%d %s | sort -u", sharedDir, hostileFiles, deepest); got != "4322" {
		w.Errorf("files belong to the groups %q", got)
	}
	w.pod("again").remove()
	w.pod("again").gone()
	w.sh("rm -r %s/many", sharedDir)
}

// start starts hostile pods and returns what removes them.
func (w *watched) start(names ...string) (end func()) {
	w.Helper()
	for _, name := range names {
		w.put(name+".yaml", manifest(hostilePods[name]))
	}
	return func() {
		for range 10 { // while all of it goes on
			w.look()
			w.sh("sleep 3")
		}
		w.Log(w.sh("tinylet ps; df -h / | tail -1; free; grep -E 'RssAnon|VmHWM' /proc/$(pidof containerd)/status"))
		for _, name := range names {
			w.pod(name).remove()
		}
		for _, name := range names {
			w.pod(name).gone()
		}
		w.look()
	}
}

func allReady(d *cli.DescriptionDocument) string {
	if d.Ready != d.Total {
		return fmt.Sprintf("%s, %d ready", d.Status, d.Ready)
	}
	return ""
}

// outputWithoutEnd has containers write logs, bodies and messages at a time.
func outputWithoutEnd(w *watched) {
	defer w.start("line", "body", "message")()
	w.until("body", "ready by answers of 16 MB", 2*patience, allReady)
	w.until("line", "its message is the end of its log", 2*patience, ended("crash", 'y', 2048))
	w.until("message", "its message is the head of its file", 2*patience, ended("c", 'm', 4096))
	w.until("message", "the file is cut once its container has ended", patience, func(d *cli.DescriptionDocument) string {
		if d.Status != "CrashLoopBackOff" {
			return d.Status
		}
		return w.sh("find /var/lib/kubelet/pods/*/containers/c -type f -size +8k | head")
	})
}

// outputOfCommands has commands of probes print 16 MB, beside some that leave
// their output open. The runtime holds the output in its own memory, several
// times: it is what this step takes of the board.
func outputOfCommands(w *watched) {
	defer w.start("print", "child")()
	w.until("print", "ready by a command that prints 16 MB", 2*patience, allReady)
	w.until("child", "its probes end in time", patience, func(d *cli.DescriptionDocument) string {
		for i := range d.Events {
			if strings.Contains(d.Events[i].Message, "timed out after 1s") && d.Events[i].Count > 1 {
				return ""
			}
		}
		return "no probe has timed out twice"
	})
}

// ended waits for a message of one character, of a container that has ended.
func ended(container string, message byte, size int) func(*cli.DescriptionDocument) string {
	return func(d *cli.DescriptionDocument) string {
		for _, c := range d.Object.Status.ContainerStatuses {
			if c.Name != container {
				continue
			}
			end := c.LastTerminationState.Terminated
			if c.State.Terminated != nil {
				end = c.State.Terminated
			}
			switch {
			case end == nil:
				return fmt.Sprintf("%+v", c.State)
			case strings.Trim(end.Message, string(message)+"\n.") != "", len(end.Message) < size/2, len(end.Message) > size:
				return fmt.Sprintf("a message of %d bytes: %.100q", len(end.Message), end.Message)
			}
			return ""
		}
		return "there is no such container"
	}
}
