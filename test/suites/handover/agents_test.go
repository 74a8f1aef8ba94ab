//go:build adopt

package handover

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/suites/handover/inventory"
)

// stockKubelet is a stock kubelet that runs on the board.
type stockKubelet struct {
	lab     *lab
	process *board.Process
	log     *logBuffer
}

const kubeletPID = "/run/stock-kubelet.pid"

func (l *lab) startKubelet() *stockKubelet {
	l.t.Helper()
	l.say("starting the stock kubelet")
	log := &logBuffer{}
	l.kubeletLogs = append(l.kubeletLogs, log)
	p, err := l.vm.Start(l.t.Context(), board.Cmd{
		// In a group of its own, as init systems start services: in the root one
		// it finds no memory.swap.max and takes the kernel to account no swap.
		Argv:   []string{"sh", "-c", "g=/sys/fs/cgroup/stock-kubelet; mkdir -p $g && echo $$ | tee " + kubeletPID + " > $g/cgroup.procs && exec /usr/bin/stock-kubelet --config /etc/stock-kubelet.yaml --v=3"},
		Stdout: log, Stderr: log,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return &stockKubelet{lab: l, process: p, log: log}
}

// content fails the test if the stock kubelet could not do with a pod what it
// wanted to, or killed something.
func (k *stockKubelet) content() {
	k.lab.t.Helper()
	for line := range bytes.Lines(k.log.bytes()) {
		failed := bytes.Contains(line, []byte("Error syncing pod")) && !bytes.Contains(line, []byte("CrashLoopBackOff"))
		if failed || bytes.Contains(line, []byte(`reason="Killing"`)) || bytes.Contains(line, []byte(`reason="SandboxChanged"`)) {
			k.lab.t.Errorf("the stock kubelet says: %.600s", line)
			return
		}
	}
}

func (k *stockKubelet) stop() {
	k.lab.t.Helper()
	k.lab.shell("kill -TERM $(cat " + kubeletPID + ")")
	exit, err := k.process.Wait()
	if err != nil {
		k.lab.t.Fatal(err)
	}
	k.lab.say("the stock kubelet ended with exit code %d", exit)
}

// forgetKubelet removes what a stock kubelet keeps of pods in its own files,
// so that the next one knows only what the runtime tells.
func (l *lab) forgetKubelet() {
	l.t.Helper()
	l.shell("rm -rf /var/lib/kubelet/*_state /var/lib/kubelet/checkpoints")
}

func (l *lab) stopTinylet() {
	l.t.Helper()
	l.shell("/etc/init.d/S50tinylet stop")
	l.say("tinylet is stopped")
}

func (l *lab) startTinylet() {
	l.t.Helper()
	l.shell("/etc/init.d/S50tinylet start")
	l.say("tinylet is started")
}

// refused fails the test if tinylet starts beside the stock kubelet.
func (l *lab) refused() {
	l.t.Helper()
	for want, argv := range map[string][]string{
		"a kubelet listens on":               {"timeout", "60", "tinylet", "--config", "/etc/tinylet/config.yaml"},
		"a kubelet is running on this node;": {"tinylet", "check"},
	} {
		out, err := l.vm.Run(l.t.Context(), argv...)
		if err != nil {
			l.t.Fatal(err)
		}
		if text := string(out.Stdout) + string(out.Stderr); out.Exit != 1 || !strings.Contains(text, want) {
			l.t.Errorf("%v beside a kubelet ends with %d and prints\n%s\nwant %q", argv, out.Exit, text, want)
		}
	}
}

// kubeletSettles waits until the stock kubelet says that each pod is in the
// state that its manifest leads to.
func (l *lab) kubeletSettles() {
	l.t.Helper()
	l.eventually("the stock kubelet has the pods in their states", func() (string, bool) {
		got, err := l.kubeletPods()
		if err != nil {
			return err.Error(), false
		}
		return l.settled(got)
	})
}

// kubeletPods asks the stock kubelet for its pods.
func (l *lab) kubeletPods() (map[string]outcome, error) {
	out, err := l.vm.Must(l.t.Context(), "wget", "-q", "-O", "-", "http://127.0.0.1:10255/pods")
	if err != nil {
		return nil, errors.New("it does not answer yet")
	}
	var pods v1.PodList
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		return nil, err
	}
	got := map[string]outcome{}
	for i := range pods.Items {
		p := &pods.Items[i]
		o := outcome{phase: string(p.Status.Phase), ids: map[string]string{}}
		for _, c := range p.Status.ContainerStatuses {
			o.restarts += int(c.RestartCount)
			o.ids[c.Name] = c.ContainerID
			if c.Ready {
				o.ready++
			}
		}
		got[p.Name] = o
	}
	return got, nil
}

// tinyletSettles is kubeletSettles for tinylet.
func (l *lab) tinyletSettles() {
	l.t.Helper()
	l.eventually("tinylet has the pods in their states", func() (string, bool) {
		got, err := l.ps()
		if err != nil {
			return "it does not answer yet", false
		}
		return l.settled(got)
	})
}

// outcome is what an agent says of a pod.
type outcome struct {
	phase           string
	ready, restarts int
	ids             map[string]string // of containers, by name
}

// outcomes are what the manifests lead to, with the least of restarts.
var outcomes = map[string]outcome{
	"plain-board":      {phase: "Running", ready: 1},
	"web-board":        {phase: "Running", ready: 2},
	"guaranteed-board": {phase: "Running", ready: 1},
	"crash-board":      {phase: "Running", restarts: 2},
	"once-board":       {phase: "Succeeded"},
	"tried-board":      {phase: "Succeeded", restarts: 1},
	"whole-board":      {phase: "Running", ready: 2},
}

// settled compares what an agent says with what is expected, and waits for
// the sandboxes of pods that are over to be stopped.
func (l *lab) settled(got map[string]outcome) (string, bool) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		g, want := got[name], outcomes[name]
		if loops(name) { // its one container comes and goes
			g.ready, g.restarts = 0, min(g.restarts, want.restarts)
		}
		if g.phase != want.phase || g.ready != want.ready || g.restarts != want.restarts {
			missing = append(missing, fmt.Sprintf("%s %s, %d ready, %d restarts", name, cmp.Or(g.phase, "unknown"), g.ready, g.restarts))
		}
	}
	if len(missing) > 0 {
		return strings.Join(missing, "; "), false
	}
	for _, s := range l.inventory().Sandboxes {
		if outcomes[s.Pod].phase == "Succeeded" && s.Ready {
			return "the sandbox of " + s.Pod + " is still up", false
		}
	}
	return "", true
}

// ps asks tinylet for its pods.
func (l *lab) ps() (map[string]outcome, error) {
	out, err := l.vm.Must(l.t.Context(), "tinylet", "ps", "-o", "json")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Pods []struct {
			Name, Phase     string
			Ready, Restarts int
			Containers      []struct{ Name, ID string }
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, err
	}
	got := map[string]outcome{}
	for _, p := range doc.Pods {
		o := outcome{phase: p.Phase, ready: p.Ready, restarts: p.Restarts, ids: map[string]string{}}
		for _, c := range p.Containers {
			o.ids[c.Name] = c.ID
		}
		got[p.Name] = o
	}
	return got, nil
}

// psShows compares `tinylet ps` with the runtime and prints it.
func (l *lab) psShows(inv *inventory.Inventory) {
	l.t.Helper()
	got, err := l.ps()
	if err != nil {
		l.t.Fatal(err)
	}
	if why, ok := l.settled(got); !ok {
		l.t.Errorf("tinylet ps: %s", why)
	}
	for _, c := range inv.Containers {
		if c.State != "RUNNING" || loops(c.Pod) {
			continue
		}
		if id := got[c.Pod].ids[c.Name]; !strings.HasSuffix(id, c.ID) {
			l.t.Errorf("tinylet ps: container %s of %s is %q, the runtime has %q", c.Name, c.Pod, id, c.ID)
		}
	}
	l.t.Logf("tinylet ps:\n%s", l.shell("tinylet ps"))
}

// nothingLeft waits until neither the runtime nor the node has a trace of a
// pod.
func (l *lab) nothingLeft() {
	l.t.Helper()
	l.eventually("nothing of the pods is left", func() (string, bool) {
		inv, err := l.list()
		if err != nil {
			return err.Error(), false
		}
		left := strings.Fields(l.shell("ls -d /var/lib/kubelet/pods/* /var/log/pods/* /var/log/containers/* " +
			"/sys/fs/cgroup/kubepods/pod* /sys/fs/cgroup/kubepods/*/pod* 2>/dev/null; awk '$2 ~ /kubelet\\/pods/ {print $2}' /proc/mounts; true"))
		if n := len(inv.Sandboxes) + len(inv.Containers) + len(left); n > 0 {
			return fmt.Sprintf("%d sandboxes, %d containers, %d folders and files, such as %q", len(inv.Sandboxes), len(inv.Containers), len(left), left[:min(1, len(left))]), false
		}
		return "", true
	})
}

// wait lets the board be.
func (l *lab) wait(d time.Duration) {
	l.t.Helper()
	l.say("leaving it alone for %v", d)
	select {
	case <-time.After(d):
	case <-l.t.Context().Done():
		l.t.Fatal(l.t.Context().Err())
	}
}
