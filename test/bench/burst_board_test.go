//go:build cluster

package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// aloneConfig is of both agents on a board that is no node of a cluster: its
// pods come from manifests.
const aloneConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
cgroupDriver: cgroupfs
failSwapOn: false
`

// stockAlone is what a stock kubelet needs beside that without an API server.
const stockAlone = `authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`

const aloneArguments = `DAEMON=%s
TINYLET_ARGS="--config /etc/tinylet/config.yaml%s"
`

// burstPod is a pod whose container prints the board's uptime as it begins. The
// kubelet takes a manifest that begins with a brace for JSON.
const burstPod = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  containers:
  - {name: main, image: %[2]q, imagePullPolicy: IfNotPresent, command: [sh, -c, "read up rest < /proc/uptime; echo $up; trap 'exit 0' TERM; sleep 1000000 & wait"]}
`

// burstAgents are those that the environment names: BURST_AGENTS is a list of
// kubelet, tinylet, and of other builds of tinylet as NAME=FILE.
func burstAgents(t *testing.T) (out []agent) {
	t.Helper()
	for name := range strings.SplitSeq(cmp.Or(os.Getenv("BURST_AGENTS"), "kubelet,tinylet"), ",") {
		name, file, other := strings.Cut(name, "=")
		a := tinylet
		switch {
		case other:
			a.binary = file
		case name == "kubelet":
			a = kubelet
		case name != "tinylet":
			t.Fatalf("BURST_AGENTS: %q is neither kubelet nor tinylet nor NAME=FILE", name)
		}
		if _, err := os.Stat(a.binary); err != nil {
			t.Fatalf("%v; make bench-burst builds it", err)
		}
		a.label = name
		out = append(out, a)
	}
	return out
}

// TestBurst creates ten pods at once on a board, with the stock kubelet and
// with tinylet in turn, each time on a board that has just booted, and again
// when those are gone. It prints when the containers ran and what the board's
// processors did. BOARD_STOCK names a container runtime in its own configuration
// (2.0, 2.3 or 2.4) in place of the image's. BURST_ROUNDS says how many boards
// each agent gets, BURST_MEMORY how many MB each has; BURST_TRACE=1 has tinylet log
// its calls of the container runtime, and prints them for each pod.
func TestBurst(t *testing.T) {
	agents := burstAgents(t)
	rounds, memory := int(board.Number(t, "BURST_ROUNDS", 3)), int(board.Number(t, "BURST_MEMORY", 512))
	if busy := load(t); busy > busyLoad {
		t.Logf("the machine has other work, on %.1f of its processors", busy)
	}
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64, Stock: board.Stock(os.Getenv("BOARD_STOCK")), Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[[2]string]*burstRow{}
	for round := range rounds {
		for _, a := range agents {
			ok := t.Run(fmt.Sprintf("%s-%d", a.label, round), func(t *testing.T) {
				n := bootAlone(t, im, a, memory)
				for _, kind := range []string{"cold", "warm"} {
					b, w := n.burst(kind)
					key := [2]string{a.label, kind}
					if rows[key] == nil {
						rows[key] = &burstRow{agent: a.label, kind: kind}
					}
					rows[key].bursts, rows[key].works = append(rows[key].bursts, b), append(rows[key].works, w)
				}
			})
			if !ok {
				t.FailNow()
			}
		}
	}
	var sorted []burstRow
	for _, r := range rows {
		sorted = append(sorted, *r)
	}
	slices.SortFunc(sorted, byAgent)
	fmt.Print("\n", burstReport(sorted), "\n")
}

// bootAlone boots a board with an agent and without a cluster, and waits until
// the agent is healthy and has come to rest.
func bootAlone(t *testing.T, im *board.Image, a agent, memory int) node {
	t.Helper()
	config, more := aloneConfig, ""
	if os.Getenv("BURST_TRACE") != "" {
		more = " --v=4"
	}
	files := []board.File{{Path: "/usr/bin/" + a.program, Mode: 0o755, Source: a.binary}}
	if a.program == kubelet.program {
		config, more = config+stockAlone, ""
		files = append(files, stockFiles()...)
	}
	files = append(files,
		board.File{Path: "/etc/default/tinylet", Mode: 0o644, Data: fmt.Appendf(nil, aloneArguments, a.program, more)},
		board.File{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(config)})
	vm, err := board.Boot(t.Context(), im, board.VMOptions{MemoryMB: memory, CPUs: 2, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	n := node{T: t, vm: vm, name: a.label, program: a.program}
	t.Cleanup(n.end)
	if err := vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := vm.WaitContainerd(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.sh("echo nameserver 192.0.2.53 > /etc/resolv.conf") // without it the kubelet starts no pod
	n.sh("for i in $(seq 300); do wget -q -O /dev/null http://127.0.0.1:10248/healthz && exit 0; sleep 1; done; exit 1")
	n.rest(10 * time.Second)
	return n
}

// burst creates pods at once, waits until all run, and removes them.
func (n node) burst(kind string) (*burst, work) {
	n.Helper()
	n.sh("mkdir -p /etc/kubernetes/burst /etc/kubernetes/manifests")
	for i := range pods {
		name := fmt.Sprintf("%s-%d", kind, i)
		err := n.vm.Put(n.Context(), "/etc/kubernetes/burst/"+name+".yaml", strings.NewReader(fmt.Sprintf(burstPod, name, board.BusyboxImage)), 0o644)
		if err != nil {
			n.Fatal(err)
		}
	}
	before, emulated := n.sample(), n.emulator()
	text := n.sh(fmt.Sprintf(burstScript, kind, pods, int(patience.Seconds())))
	emulated = n.emulator() - emulated
	after := n.sample()
	b, err := parseBurst(text)
	if err != nil {
		n.Fatal(err)
	}
	b.emulator = emulated
	if len(b.ran) != pods {
		n.Fatalf("%d of %d containers ran:\n%s", len(b.ran), pods, text)
	}
	w, err := after.workSince(before, n.program)
	if err != nil {
		n.Fatal(err)
	}
	n.Logf("%s: ran after %v; %.1f s of QEMU's CPU time", kind, tenths(b.ran), emulated.Seconds())
	n.Logf("%s: available %d MB before, %d MB after; written %d kB", kind, before.available>>20, after.available>>20, (after.written-before.written)>>10)
	if os.Getenv("BURST_TRACE") != "" && n.program == tinylet.program {
		traces, err := parseTraces(n.sh("cat /var/log/tinylet.log"), kind+"-")
		if err != nil {
			n.Fatal(err)
		}
		n.Logf("%s: calls of the container runtime:\n%s", kind, traceTable(traces))
	}
	n.sh("rm /etc/kubernetes/manifests/*.yaml; for i in $(seq 600); do set -- /var/log/pods/default_" + kind + "-*; [ -e \"$1\" ] || exit 0; sleep 1; done; exit 1")
	n.rest(10 * time.Second)
	return b, w
}

// emulator is the CPU time of the QEMU that this process has started. Other
// work on the machine makes a burst take longer and changes this little.
func (n node) emulator() time.Duration {
	n.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		n.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, p, err := parseStat(string(line))
		if err != nil {
			n.Fatal(err)
		}
		if p.parent == os.Getpid() && strings.HasPrefix(p.name, "qemu-system") {
			return p.cpu
		}
	}
	n.Fatal("no QEMU of this process runs")
	return 0
}

func tenths(times []time.Duration) (out []string) {
	for _, d := range times {
		out = append(out, fmt.Sprintf("%.1f", d.Seconds()))
	}
	return out
}
