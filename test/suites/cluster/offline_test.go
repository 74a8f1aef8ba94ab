//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const carried = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {room: cellar}
      containers:
      - name: web
        image: localhost/busybox:1
        command: [sh, -c, 'echo "$COLOR $PASSWORD $KUBERNETES_SERVICE_HOST $(cat /settings/color)"; exec sleep 100000']
        env:
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
        volumeMounts: [{name: settings, mountPath: /settings}]
      volumes: [{name: settings, configMap: {name: settings}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    metadata: {labels: {app: once}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, "echo done"]}]
`

// onBoard are the phases and ready containers of the pods that the board shows whose names begin
// with prefix, by name; none while its agent does not answer.
func (l lab) onBoard(prefix string) map[string]string {
	l.Helper()
	var document struct {
		Pods []struct {
			Name, Phase  string
			Ready, Total int
		}
	}
	out, err := l.vm.Run(l.Context(), "tinylet", "ps", "-o", "json")
	if err != nil || out.Exit != 0 {
		return nil
	}
	if err := json.Unmarshal(out.Stdout, &document); err != nil {
		l.Fatalf("tinylet ps: %v\n%s", err, out.Stdout)
	}
	phases := make(map[string]string)
	for _, p := range document.Pods {
		if strings.HasPrefix(p.Name, prefix) {
			phases[p.Name] = fmt.Sprintf("%s %d/%d", p.Phase, p.Ready, p.Total)
		}
	}
	return phases
}

// TestOffline cuts the board's power, and starts it without its cluster: the
// pods run again, and stay as they are when the cluster is back.
func TestOffline(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	l.sh("sync") // the agent and its configuration were installed long ago
	l.c.Must(t, "label", "node", name, "room=cellar")
	l.c.Apply(t, carried)
	l.until("ten replicas run", func() string { return l.running("app=web", 10) })
	l.c.Must(t, "wait", "--for=condition=Complete", "job/once", "--timeout=4m")
	names := sorted(l.onBoard("web-"))

	l.vm.Kill()
	<-l.vm.Ended()
	l.c.Partition(t, name)
	l.vm = l.reboot()
	// `tinylet ps` costs a board that has no moment to spare a third of a second:
	// it is not asked before the groups of ten sandboxes and containers are there.
	l.sh(`i=0; until [ "$(ls -d /sys/fs/cgroup/kubepods/besteffort/pod*/*/ 2> /dev/null | wc -l)" -ge 20 ] || [ $((i += 1)) -gt 400 ]; do sleep 0.5; done`)
	l.until("ten pods run without the cluster", func() string {
		n := 0
		for _, phase := range l.onBoard("web-") {
			if phase == "Running 1/1" {
				n++
			}
		}
		if n != 10 {
			return fmt.Sprintf("%d run", n)
		}
		return ""
	})
	t.Logf("ten restored pods run %s s after the start of the kernel (budget 25)", strings.Fields(l.sh("cat /proc/uptime"))[0])
	if diff := cmp.Diff(names, sorted(l.onBoard("web-"))); diff != "" {
		t.Errorf("pods (-before +after the power cut):\n%s", diff)
	}
	for _, name := range names {
		if got := l.sh("tinylet logs --tail 1 " + name); got != "blue s3cret 10.96.0.1 blue" {
			t.Errorf("%s says %q", name, got)
		}
	}
	if got := l.sh("ctr -n k8s.io t ls | grep -c RUNNING"); got != "20" {
		t.Errorf("%s tasks run, want ten pods with a sandbox and a container each: a Job that had ended must not run again", got)
	}

	// Meanwhile the cluster goes on.
	victim := names[0]
	l.c.Must(t, "delete", "pod", victim, "--wait=false")
	l.c.Must(t, "patch", "configmap/settings", `--patch={"data":{"color":"green"}}`)
	tasks := l.sh("ctr -n k8s.io t ls -q")
	l.c.Heal(t, name)
	l.until("the node is Ready again", l.nodeReady)
	l.until("what was deleted meanwhile is gone", func() string {
		if slices.Contains(sorted(l.onBoard("web-")), victim) {
			return "it runs"
		}
		return ""
	})
	l.until("ten replicas run", func() string { return l.running("app=web", 10) })
	now := strings.Fields(l.sh("ctr -n k8s.io t ls -q"))
	lost := 0
	for _, task := range strings.Fields(tasks) {
		if !slices.Contains(now, task) {
			lost++
		}
	}
	if lost != 2 {
		t.Errorf("%d of the tasks that ran without the cluster are gone, want the 2 of the pod that was deleted", lost)
	}
	l.until("a ConfigMap that changed meanwhile reaches the volumes", func() string {
		script := "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 100000' && cat $p/root/settings/color && echo; done 2> /dev/null | sort | uniq -c; true"
		if got := strings.Join(strings.Fields(l.sh(script)), " "); got != "10 green" {
			return got
		}
		return ""
	})
}

func sorted(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
