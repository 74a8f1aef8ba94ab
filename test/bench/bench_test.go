//go:build cluster

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// pods is how many pods a full node has here.
const pods = 10

// plan says how long a run measures.
type plan struct {
	settle       time.Duration // before a window without pods
	settlePods   time.Duration // before one with pods
	idle         time.Duration // the window of the network measurement: as long as the pause between reports of the node's status
	short        time.Duration // the other windows
	rounds       int           // of one pod
	betweenRound time.Duration
}

var (
	full  = plan{settle: 90 * time.Second, settlePods: 45 * time.Second, idle: 5 * time.Minute, short: 2 * time.Minute, rounds: 15, betweenRound: 3 * time.Second}
	quick = plan{settle: 10 * time.Second, settlePods: 10 * time.Second, idle: 20 * time.Second, short: 20 * time.Second, rounds: 2, betweenRound: time.Second}
)

// planFromEnv is the full plan, unless the environment wants another:
// BENCH_QUICK=1 for a run that proves that it works and measures little,
// BENCH_WINDOW for other idle windows.
func planFromEnv(t *testing.T) (p plan, complete bool) {
	t.Helper()
	p, complete = full, true
	if os.Getenv("BENCH_QUICK") != "" {
		p, complete = quick, false
	}
	if text := os.Getenv("BENCH_WINDOW"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		p.idle, p.short, complete = d, d, false
	}
	return p, complete
}

// TestComparison measures both agents and prints the table. It fails when
// something could not be measured, not when a budget is missed: how fast the
// board is depends on the machine that emulates it.
func TestComparison(t *testing.T) {
	p, complete := planFromEnv(t)
	for _, a := range []agent{kubelet, tinylet} {
		if _, err := os.Stat(a.binary); err != nil {
			t.Fatalf("%v; make bench builds it", err)
		}
	}
	c := conditions{
		date: time.Now(), settle: p.settle, settlePods: p.settlePods, idleWindow: p.idle, shortWindow: p.short, rounds: p.rounds, load: load(t),
	}
	if c.load > busyLoad {
		t.Logf("the machine has other work, on %.1f of its processors: the figures will not be of use", c.load)
	}
	cl := controlplane.Start(t, controlplane.Options{})
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	var r results
	for _, step := range []struct {
		name string
		test func(*testing.T)
	}{
		{"kubelet", func(t *testing.T) {
			n := boot(t, cl, im, "kubelet", kubelet.program, append(kubelet.files(t, cl), stockFiles()...))
			c.fillIn(n, n.join())
			r.kubelet = n.measure(p, kubelet, true)
		}},
		{"tinylet", func(t *testing.T) {
			n := boot(t, cl, im, "tinylet", tinylet.program, tinylet.files(t, cl))
			c.tinylet = n.join().KubeletVersion
			r.tinylet = n.measure(p, tinylet, true)
		}},
		{"runtime alone", func(t *testing.T) {
			n := boot(t, cl, im, "runtime", "", append(stockFiles(), // an agent would configure the pod network
				board.File{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte("exit 0\n")}, // no agent
				board.File{Path: "/usr/bin/bare", Mode: 0o755, Source: buildBare(t)},
			))
			r.runtime = n.measureRuntime(p)
		}},
		{"kubelet with containerd's defaults", func(t *testing.T) {
			n := boot(t, cl, im, "defaults", kubelet.program, append(append(kubelet.files(t, cl), stockFiles()...),
				board.File{Path: "/etc/containerd/config.toml", Mode: 0o644, Data: []byte(defaultContainerd)}))
			n.join()
			r.defaults = n.measure(p, kubelet, false)
		}},
	} {
		if only := os.Getenv("BENCH_ONLY"); only != "" {
			complete = false
			if only != step.name {
				continue
			}
		}
		if !t.Run(step.name, step.test) {
			t.FailNow()
		}
	}
	text := report(c, r)
	fmt.Print("\n", text, "\n")
	for _, m := range r.missed() {
		t.Logf("not within its budget: %s", m)
	}
	if !complete {
		t.Logf("not a full run: %s stays as it is", resultsFile)
		return
	}
	if err := os.WriteFile(resultsFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	publish(t, text, true)
	t.Logf("written to %s, and from there to README.md and its chart", filepath.Join("test", "bench", resultsFile))
}

// load is how many of the machine's processors are at work, over a few
// seconds. The load average would still include what was built before.
func load(t *testing.T) float64 {
	t.Helper()
	idle := func() (s sample) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.readStat(strings.Split(string(text), "\n")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, began := idle(), time.Now()
	time.Sleep(5 * time.Second)
	after, took := idle(), time.Since(began)
	return float64(after.cpus) - (after.idle-before.idle).Seconds()/took.Seconds()
}

// fillIn sets what a node reports of the board.
func (c *conditions) fillIn(n node, info corev1.NodeSystemInfo) {
	c.kernel, c.kubelet = info.KernelVersion, info.KubeletVersion
	c.containerd = strings.Replace(info.ContainerRuntimeVersion, "://", " ", 1)
	c.runtime, _, _ = strings.Cut(strings.Replace(n.sh("crun --version"), "crun version", "crun", 1), "\n")
}

// measure takes all measurements of an agent whose node is Ready, or all but those
// of the wire, which take longer.
func (n node) measure(p plan, a agent, wire bool) measurements {
	n.Helper()
	info, err := os.Stat(a.binary)
	if err != nil {
		n.Fatal(err)
	}
	f := measurements{binarySize: float64(info.Size()) / mega}

	idle := p.short
	if wire {
		idle = p.idle
	}
	n.Logf("idle without pods: %v, after %v of rest", idle, p.settle)
	n.rest(p.settle)
	if err := f.addIdle(n.samples(idle), a.program, wire); err != nil {
		n.Fatal(err)
	}

	n.Logf("agent %.1f ms/s, node %.1f ms/s; agent %.1f MB of anonymous memory", f[idleCPU(partNames[partAgent])], f[idleCPU(wholeNode)], f[idleAnon])

	w := n.watch()
	defer w.close()
	var starts, deletes []time.Duration
	for i := range p.rounds {
		one := []string{fmt.Sprintf("%s-one-%d", n.name, i)}
		starts = append(starts, w.create(one)...)
		n.rest(p.betweenRound)
		deletes = append(deletes, w.delete(one)...)
		n.rest(p.betweenRound)
	}
	f.addOne(starts, deletes)

	var ten []string
	for i := range pods {
		ten = append(ten, fmt.Sprintf("%s-ten-%d", n.name, i))
	}
	starts = w.create(ten)
	n.Logf("idle with %d pods: %v, after %v of rest", pods, p.short, p.settlePods)
	n.rest(p.settlePods)
	if err := f.addPods(n.samples(p.short), a.program, pods); err != nil {
		n.Fatal(err)
	}
	n.Logf("agent %.1f ms/s, node %.1f ms/s; agent %.1f MB of anonymous memory", f[podsCPU(partNames[partAgent])], f[podsCPU(wholeNode)], f[podsAnon])
	n.untouched(ten)
	f.addTen(starts, w.delete(ten))
	return f
}

// measureRuntime takes the times of the runtime alone.
func (n node) measureRuntime(p plan) measurements {
	n.Helper()
	n.rest(p.settle / 3) // no agent has to settle
	f := measurements{}
	var starts, stops []time.Duration
	for _, r := range n.bare(1, p.rounds) {
		starts, stops = append(starts, r.Starts...), append(stops, r.Stops...)
	}
	f.addOne(starts, stops)
	ten := n.bare(pods, 1)[0]
	f.addTen(ten.Starts, ten.Stops)
	n.Logf("one pod: %.2f s; ten: p50 %.2f s, last %.2f s", f[oneStart], f[tenStart], f[lastStart])
	return f
}
