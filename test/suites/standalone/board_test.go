//go:build board

package standalone

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// TestBoard boots one board and tests it step by step: booting is what costs.
func TestBoard(t *testing.T) {
	n := boot(t, board.VMOptions{})
	for _, step := range []struct {
		name string
		test func(node)
		// once is for what does not depend on the architecture: it runs on
		// the faster board alone.
		once bool
	}{
		{"three pods", threePods, false},
		{"manifests change", manifestsChange, false},
		{"agent killed", agentKilled, false},
		{"budgets", budgets, false},
		{"groups of memory", memoryGroups, false},
		{"agent ends by SIGTERM", agentEnds, true},
		{"bad manifests", badManifests, true},
		{"image missing and invalid command", cannotStart, true},
		{"clock jumps", clockJumps, true},
		{"disk full", diskFull, true},
		{"containerd stopped, restarted, hung", containerdFaults, true},
		{"a container that containerd has lost", lostContainer, true},
		{"one of a pod that nobody knows", lostOrphan, true},
		{"a sandbox that containerd has lost", lostSandbox, true},
		{"what a broken-off start left", brokenOffStart, true},
	} {
		if step.once && arch() != board.ARM64 {
			continue
		}
		if !t.Run(step.name, func(t *testing.T) {
			n := n.with(t)
			step.test(n)
			n.clear()
		}) {
			break // the next steps would only fail for the same reason
		}
	}
}

// threePods is the demo's manifests: two containers behind an init container,
// a crash loop, and one that completes.
func threePods(n node) {
	files, err := filepath.Glob("../../tools/demo/manifests/*.yaml")
	if err != nil || len(files) != 3 {
		n.Fatalf("%d manifests: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			n.Fatal(err)
		}
		n.put(filepath.Base(file), string(text))
	}
	pods := n.eventually(patience, "three pods in their states", func(pods map[string]cli.PodDocument) string {
		return statuses(map[string]string{"web": "Running", "crashing": "CrashLoopBackOff", "once": "Completed"})(pods)
	})
	if web := pods["web"]; web.Ready != 2 || web.Total != 2 || web.PodIP == "" || web.MemoryBytes == 0 {
		n.Errorf("web: %+v", web)
	}
	if once := pods["once"]; once.Phase != "Succeeded" || once.Restarts != 0 {
		n.Errorf("once: %+v", once)
	}
	if crashing := pods["crashing"]; crashing.Restarts < 1 || crashing.Containers[0].Reason != "CrashLoopBackOff" {
		n.Errorf("crashing: %+v", crashing)
	}
	if got := n.sh("tinylet logs web -c server --tail 1"); got != "serving /www on port 8080" {
		n.Errorf("log of web's server: %q", got)
	}
	if got := n.sh("wget -q -O - http://%s:8080/", pods["web"].PodIP); got != "hello from a board" {
		n.Errorf("the pod serves %q", got)
	}
	if got := n.sh("wget -q -O - http://127.0.0.1:10248/healthz"); got != "ok" {
		n.Errorf("healthz: %q", got)
	}
	if got := n.sh("tinylet describe crashing"); !strings.Contains(got, "BackOff") || !strings.Contains(got, "exit") {
		n.Errorf("describe crashing:\n%s", got)
	}
	n.lookedInto()
	n.Log("\n" + n.sh("tinylet ps; tinylet status"))
	var doc cli.PodsDocument
	if err := json.Unmarshal([]byte(n.sh("tinylet ps -o json")), &doc); err != nil || len(doc.Pods) != len(pods) {
		n.Errorf("ps -o json lists %d pods, not %d: %v", len(doc.Pods), len(pods), err)
	}
}

// update is a line that the sync loop logs for each update of a pod.
var update = regexp.MustCompile(`time=(\S+) .*msg="pod update" op=(\w+) pod=default/(\S+)-board`)

// reaction is how long after the board's time t0 the agent dispatched op.
func (n node) reaction(t0 time.Time, op, name string) time.Duration {
	n.Helper()
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(time.Second) {
		for line := range strings.Lines(n.tail(60)) {
			m := update.FindStringSubmatch(line)
			if m == nil || m[2] != op || m[3] != name {
				continue
			}
			if at, err := time.Parse(time.RFC3339, m[1]); err == nil && !at.Before(t0) {
				return at.Sub(t0)
			}
		}
	}
	n.Fatalf("the agent did not see %s of %s", op, name)
	return 0
}

// now is the board's clock.
func (n node) now() time.Time {
	n.Helper()
	text := n.sh("touch /tmp/now && TZ=UTC stat -c %%y /tmp/now") // BusyBox's date has no fractions
	now, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", text)
	if err != nil {
		n.Fatal(err)
	}
	return now
}

// manifestsChange prints how soon the agent acts on a change: within 2 s of
// the board's time, the runtime's own time apart.
func manifestsChange(n node) {
	react := func(what, op, name string, t0 time.Time) {
		d := n.reaction(t0, op, name)
		n.Logf("manifest %s: dispatched after %d ms of the board's time (budget 2000)", what, d.Milliseconds())
		if d > slow(2*time.Second) {
			n.Errorf("manifest %s: the agent took %v", what, d)
		}
	}
	t0 := n.now()
	n.put("a.yaml", sleeper("a", 1))
	react("added", "ADD", "a", t0)
	n.put("b.yaml", sleeper("b", 1))
	before := n.eventually(patience, "two pods run", statuses(map[string]string{"a": "Running", "b": "Running"}))

	t0 = n.now()
	n.sh("sed -i s/1000000/2000000/ %s/a.yaml", manifestDir)
	react("edited", "ADD", "a", t0)
	after := n.eventually(patience, "the edited pod runs anew", func(pods map[string]cli.PodDocument) string {
		if pods["a"].UID == before["a"].UID {
			return "it is still the old one"
		}
		return statuses(map[string]string{"a": "Running", "b": "Running"})(pods)
	})
	if after["b"].Containers[0].ID != before["b"].Containers[0].ID {
		n.Error("the other pod was restarted")
	}
	t0 = n.now()
	n.sh("rm %s/a.yaml", manifestDir)
	react("removed", "REMOVE", "a", t0)
	n.eventually(patience, "the removed pod is gone", statuses(map[string]string{"b": "Running"}))
}

// badManifests puts every bad file beside a good one.
func badManifests(n node) {
	n.put("good.yaml", sleeper("good", 1))
	good := n.eventually(patience, "the good pod runs", statuses(map[string]string{"good": "Running"}))
	n.sh(`cd %s
head -c 200 good.yaml > half.yaml
head -c 11000000 /dev/zero > huge.yaml
head -c 4096 /dev/urandom > binary.yaml
: > empty.yaml
mkfifo pipe.yaml
mkdir folder.yaml
ln -s /nonexistent link.yaml
echo '{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"}}' > service.json
printf 'apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {containers: [{name: c, image: x}]}\n' > noname.yaml
printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: ../../etc}\nspec: {containers: [{name: c, image: x}]}\n' > path.yaml
sed s/sleep/true/ good.yaml > clash.yaml
printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {nodeSelector: {site: elsewhere}, containers: [{name: c, image: "localhost/busybox:1"}]}\n' > odd.yaml
`, manifestDir)
	pods := n.eventually(patience, "only the odd pod is taken, and rejected", func(pods map[string]cli.PodDocument) string {
		if pods["odd"].Phase != "Failed" {
			return "the odd pod is not rejected"
		}
		return statuses(map[string]string{"good": "Running", "odd": pods["odd"].Status})(pods)
	})
	if pods["good"].Containers[0].ID != good["good"].Containers[0].ID {
		n.Error("the good pod was restarted")
	}
	n.told("half.yaml", "huge.yaml", "binary.yaml", "service.json", "noname.yaml", "path.yaml", "DuplicatePod", "NodeAffinity")
	// A good pod survives its file being broken and mended.
	n.sh("cd %s && cp good.yaml /tmp/good && echo '{{{' > good.yaml && sleep 3 && cp /tmp/good good.yaml && sleep 2", manifestDir)
	if now := n.eventually(patience, "the good pod still runs", func(pods map[string]cli.PodDocument) string {
		if pods["good"].Status != "Running" {
			return pods["good"].Status
		}
		return ""
	}); now["good"].Containers[0].ID != good["good"].Containers[0].ID {
		n.Error("the good pod was restarted by a broken edit")
	}
}

// told waits until there is an event with each of the texts.
func (n node) told(texts ...string) {
	n.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Second) {
		events := n.sh("tinylet events")
		missing := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(events, text) })
		switch {
		case len(missing) == 0:
			return
		case time.Now().After(limit):
			n.Fatalf("no event tells of %q:\n%s", missing, events)
		}
	}
}

// busy prints the processes, seen within some seconds, of the programs that
// start and stop containers: none where containerd has come to rest. Its last
// line is a checksum of the process IDs of all containers.
const busy = `for i in 1 2 3 4 5 6; do
	for p in /proc/[0-9]*; do
		read -r name < "$p/comm" 2> /dev/null || continue
		case "$name" in crun|bridge|host-local|loopback|portmap|firewall) echo "${p#/proc/} $name" ;; esac
	done
	sleep 0.5
done | sort -u
grep . /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/init.pid /dev/null 2> /dev/null | cksum
`

// settledTasks is tasks once they do not change any more: containerd takes
// back a start whose caller has died, and its process is seen until then. What
// stays the same for long is no work: a start that was broken off in the middle
// can leave a process that containerd does not know any more (the agent kills
// it with the pod's end).
func (n node) settledTasks() map[string]string {
	n.Helper()
	last := ""
	for looks, same := 0, 0; looks < 20; looks++ {
		now := n.sh(busy)
		if now != last {
			last, same = now, 0
			continue
		}
		work := now[:max(strings.LastIndex(now, "\n"), 0)]
		if same++; work == "" || same == 4 {
			if work != "" {
				n.Logf("left over from a start that was broken off: %s", work)
			}
			return n.tasks()
		}
	}
	n.Errorf("what containerd runs does not settle though no agent runs: %q", last)
	return n.tasks()
}

// agentKilled kills the agent with SIGKILL ten times and more while six
// containers start; what runs keeps its ID and its process, and nothing runs
// twice.
func agentKilled(n node) {
	if err := n.vm.WaitContainerd(n.ctx); err != nil {
		n.Fatal(err)
	}
	n.sh("/etc/init.d/S50tinylet stop")
	names := map[string]string{}
	running := map[string]string{}
	// On a slow board all of the first ten may come before anything runs.
	for i := 0; i < 10 || i < 20 && len(running) == 0; i++ {
		// One more pod every third time, and ever later kills, so that they
		// hit every stage of a start.
		if i%3 == 0 && i < 9 {
			name := fmt.Sprintf("k%d", i/3)
			n.put(name+".yaml", sleeper(name, 2))
			names[name] = "Running"
		}
		life := slow([]time.Duration{1500 * time.Millisecond, 4 * time.Second, 10 * time.Second}[i%3])
		if i >= 10 {
			life *= 3
		}
		n.sh(`tinylet --config /etc/tinylet/config.yaml >> %s 2>&1 &
pid=$!; sleep %.1f; kill -9 $pid; wait $pid 2>/dev/null; true`, agentLog, life.Seconds())
		now := n.settledTasks()
		for id, pid := range running {
			if now[id] != pid {
				n.Errorf("kill %d: container %s ran as %s and is now %q", i, id, pid, now[id])
			}
		}
		running = now
	}
	n.Logf("%d tasks ran after the kills", len(running))
	if len(running) == 0 {
		n.Error("the kills came before anything ran: they prove nothing")
	}
	n.sh("/etc/init.d/S50tinylet start")
	n.eventually(3*time.Minute, "all run after the kills", statuses(names))
	now := n.tasks()
	for id, pid := range running {
		if now[id] != pid {
			n.Errorf("container %s ran as %s and is now %q", id, pid, now[id])
		}
	}
	if len(now) != 3+6 {
		n.Errorf("%d tasks for three sandboxes and six containers: %v", len(now), slices.Sorted(maps.Keys(now)))
	}
}

// agentEnds stops the agent as init does and starts it again.
func agentEnds(n node) {
	n.put("s.yaml", sleeper("s", 1))
	n.eventually(patience, "the pod runs", statuses(map[string]string{"s": "Running"}))
	before := n.tasks()
	n.sh("/etc/init.d/S50tinylet stop")
	if got := n.tasks(); !maps.Equal(got, before) {
		n.Errorf("SIGTERM to the agent changed what runs: %v, now %v", before, got)
	}
	if out, err := n.vm.Run(n.ctx, "tinylet", "ps"); err != nil || out.Exit != 3 || !strings.Contains(string(out.Stderr), "is not running") {
		n.Errorf("ps without an agent: exit %d, %s, %v", out.Exit, out.Stderr, err)
	}
	n.sh("/etc/init.d/S50tinylet start")
	n.eventually(patience, "the pod is adopted", statuses(map[string]string{"s": "Running"}))
	if got := n.tasks(); !maps.Equal(got, before) {
		n.Errorf("the next agent changed what runs: %v, now %v", before, got)
	}
}
