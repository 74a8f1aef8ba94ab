//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

// The files of a board that is a node.
const (
	kubeconfigFile = "/etc/kubernetes/kubelet.conf"
	bootstrapFile  = "/etc/kubernetes/bootstrap-kubelet.conf"
	pairFile       = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	staticFile     = "/etc/kubernetes/manifests/local.yaml"
)

// step is a part of a test on one board.
type step struct {
	name string
	test func(lab)
}

// run runs steps until one fails, and says how long each took. In the end it
// looks that the cluster has refused the node nothing.
func (l *lab) run(t *testing.T, steps ...step) {
	t.Helper()
	for _, s := range steps {
		began, before := time.Now(), l.with(t).cost()
		if !t.Run(s.name, func(t *testing.T) { s.test(l.with(t)) }) {
			break
		}
		took := time.Since(began)
		t.Logf("%s: took %.0f s, in which %s", s.name, took.Seconds(), l.with(t).cost().since(before, took))
	}
	for _, e := range l.c.Refused(t) {
		t.Errorf("the cluster refused %s", e)
	}
}

// cost is the CPU time that a board has used since its start.
type cost struct {
	agent   string        // which one
	own     time.Duration // the agent's
	machine time.Duration // all that is not idle
}

func (l lab) cost() cost {
	l.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100
	c := cost{agent: l.agent()}
	number := func(script string) time.Duration {
		n, err := strconv.ParseInt(l.sh(script), 10, 64)
		if err != nil {
			l.Fatal(err)
		}
		return time.Duration(n) * tick
	}
	c.own = number(`awk '{print $14 + $15}' /proc/` + agentPID + `/stat`)
	c.machine = number(`awk '/^cpu / {print $2 + $3 + $4 + $7 + $8}' /proc/stat`)
	return c
}

// since says what was used after an earlier cost.
func (c cost) since(before cost, took time.Duration) string {
	own := c.own
	if c.agent == before.agent {
		own -= before.own
	}
	return fmt.Sprintf("the agent used %.0f and the board %.0f ms/s of CPU",
		float64(own.Milliseconds())/took.Seconds(), float64((c.machine-before.machine).Milliseconds())/took.Seconds())
}

// joining are the files of a board that joins with a kubeconfig, nil for none
// yet. A later boot leaves what is on its disk.
func joining(bootstrap []byte, more ...board.File) []board.File {
	files := []board.File{
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(config)},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte(arguments)},
	}
	if bootstrap != nil {
		files = append(files, board.File{Path: bootstrapFile, Mode: 0o600, Data: bootstrap})
	}
	return append(files, more...)
}

// told is a part of what tinylet status says.
type told struct {
	PID     int
	Cluster struct {
		Registered bool
		Answered   *time.Time
		Failure    string
		Problem    string
	}
}

// status is what the agent says of itself; the zero value while it does not
// answer.
func (l lab) status() told {
	l.Helper()
	out, err := l.vm.Run(l.Context(), "tinylet", "status", "-o", "json")
	if err != nil {
		l.Fatal(err)
	}
	var s told
	if len(out.Stdout) == 0 {
		return s // there is no agent yet
	}
	if err := json.Unmarshal(out.Stdout, &s); err != nil {
		l.Fatalf("tinylet status: %v\n%s", err, out.Stdout)
	}
	return s
}

// says waits until tinylet status, as a person sees it, has a text.
func (l lab) says(text string) {
	l.Helper()
	l.until("tinylet status says "+strconv.Quote(text), func() string {
		// The exit code says that something is wrong.
		if got := l.sh("tinylet status 2>&1 || true"); !strings.Contains(got, text) {
			return got
		}
		return ""
	})
}

// logged waits until the agent's log has a text.
func (l lab) logged(text string) {
	l.Helper()
	l.until("the log says "+strconv.Quote(text), func() string {
		if l.sh("grep -qF "+quoted(text)+" /var/log/tinylet.log && echo yes || true") == "" {
			return l.sh("tail -n 3 /var/log/tinylet.log")
		}
		return ""
	})
}

// evented waits until the board has an event with a reason and a text.
func (l lab) evented(reason, text string) {
	l.Helper()
	l.until("an event "+reason, func() string {
		for line := range strings.Lines(l.sh("tinylet events")) {
			if strings.Contains(line, reason) && strings.Contains(line, text) {
				return ""
			}
		}
		return "none says " + text
	})
}

// quoted is a text as one word of the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// agentPID is a shell's words for the agent's process: the program's calls as a
// CNI plugin, and its commands, are others.
const agentPID = "$(for p in $(pidof tinylet); do if grep -q -e --config /proc/$p/cmdline; then echo $p; fi; done)"

// agent is how the agent's process is called by the kernel: another one after
// a restart.
func (l lab) agent() string {
	l.Helper()
	return l.sh("p=" + agentPID + "; echo $p $(cut -d' ' -f22 /proc/$p/stat)")
}

// renewedSince waits for a lease that the node has renewed after a moment, and
// answers how long after it the server had it, as this machine sees it. The
// node's own clock may be wrong.
func (l lab) renewedSince(moment time.Time) time.Duration {
	l.Helper()
	version := func() string {
		var lease coordinationv1.Lease
		l.c.Get(l.T, &lease, "lease", name, "--namespace=kube-node-lease")
		return lease.ResourceVersion
	}
	before := version()
	var took time.Duration
	l.until("the lease is renewed", func() string {
		if version() == before {
			return "it is not"
		}
		took = time.Since(moment)
		return ""
	})
	return took
}

// lapses is how often the cluster has called the node not ready.
func (l lab) lapses() int {
	l.Helper()
	var events corev1.EventList
	l.c.Get(l.T, &events, "events", "--field-selector=involvedObject.kind=Node,reason=NodeNotReady")
	n := 0
	for _, e := range events.Items {
		n += int(max(e.Count, 1))
	}
	return n
}

// steady are pods that nothing may restart.
func (l lab) steady(replicas int) {
	l.Helper()
	l.c.Apply(l.T, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: steady}
spec:
  replicas: %d
  selector: {matchLabels: {app: steady}}
  template:
    metadata: {labels: {app: steady}}
    spec:
      terminationGracePeriodSeconds: 1
      # A node that is away for long keeps them.
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: "localhost/busybox:1", command: [sleep, "100000"]}]
`, replicas))
	l.until("the steady pods run", func() string { return l.running("app=steady", replicas) })
}

// untouched runs do, and looks that the steady pods' containers are the same
// then.
func (l lab) untouched(do func()) {
	l.Helper()
	before := restarts(l.pods("app=steady"))
	do()
	if diff := cmp.Diff(before, restarts(l.pods("app=steady"))); diff != "" {
		l.Errorf("containers of steady pods (-before +after):\n%s", diff)
	}
}

// churn creates and deletes pods, a few of which are there at a time.
type churn struct {
	lab
	made int
	want []string // the names that are to be there
}

const churned = "app=churn"

// turn does the next thing.
func (c *churn) turn() {
	c.Helper()
	if c.made%5 == 3 && len(c.want) > 2 || len(c.want) > 5 {
		victim := c.want[c.made%len(c.want)]
		c.c.Must(c.T, "delete", "pod", victim, "--wait=false")
		c.want = slices.DeleteFunc(c.want, func(n string) bool { return n == victim })
	}
	pod := fmt.Sprintf("churn-%02d", c.made)
	c.made++
	c.want = append(c.want, pod)
	c.c.Apply(c.T, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: churn}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "localhost/busybox:1", command: [sleep, "100000"]}]
`, pod, name))
}

// converges waits until the cluster and the board have the same pods, which
// run, each once.
func (c *churn) converges() {
	c.Helper()
	slices.Sort(c.want)
	c.until(fmt.Sprintf("%d of %d pods are left and run", len(c.want), c.made), func() string { return c.running(churned, len(c.want)) })
	var have []string
	for _, p := range c.pods(churned) {
		have = append(have, p.Name)
	}
	slices.Sort(have)
	if diff := cmp.Diff(c.want, have); diff != "" {
		c.Errorf("pods of the cluster (-want +have):\n%s", diff)
	}
	c.until("the board has the same", func() string { return cmp.Diff(c.want, sorted(c.onBoard("churn-"))) })
	c.until("each runs once", func() string {
		// The names of the pods of all containers that run, sandboxes included.
		got := c.sh(`for t in $(ctr -n k8s.io task ls | awk '$3 == "RUNNING" {print $1}'); do
ctr -n k8s.io container info "$t" | sed -n 's/.*"io.kubernetes.pod.name": "\(churn-[^"]*\)".*/\1/p' | head -n 1
done | sort | uniq -c | awk '{print $1, $2}'`)
		var want []string
		for _, n := range c.want {
			want = append(want, "2 "+n)
		}
		return cmp.Diff(strings.Join(want, "\n"), got)
	})
}

// clear deletes what is left.
func (c *churn) clear() {
	c.Helper()
	c.c.Must(c.T, "delete", "pods", "--selector="+churned, "--wait=false")
	c.want = nil
	c.gone(churned)
}
