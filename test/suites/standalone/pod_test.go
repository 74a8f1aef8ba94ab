//go:build board

package standalone

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// patience is how long a check waits for what a fast board does in a second:
// pods of a scene start at the same time, on an emulator.
const patience = 4 * time.Minute

// sharedDir of the board is where containers leave what outlives them.
const sharedDir = "/var/tmp/e2e"

const objectsDir = "/etc/tinylet/objects"

// podConfig is the agent's configuration in TestPod: small logs, a cluster's
// DNS, and what pods may ask for beyond the defaults.
const podConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
cgroupDriver: cgroupfs
healthzBindAddress: 127.0.0.1
healthzPort: 10248
failSwapOn: false
containerLogMaxSize: 20Ki
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
allowedUnsafeSysctls: [kernel.msgmax]
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
maxPods: 110
---
apiVersion: tinylet.dev/v1alpha1
kind: TinyletConfiguration
logFormat: text
socketPath: /run/tinylet/tinylet.sock
objectsFolder: /etc/tinylet/objects
imagesFolder: /var/lib/tinylet/images
`

// baseObjects are what most pods of TestPod refer to.
const baseObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {color: blue, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: default}
stringData: {password: s3cret}
`

// noMkdir is a seccomp profile that forbids to make folders.
const noMkdir = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`

// scene is a set of pods that start together, and the checks on them.
type scene struct {
	name   string
	before func(node)        // what the board needs first; may be nil
	pods   map[string]string // manifests by the pod's name
	checks []check
	after  func(node) // tidies the board up; may be nil
}

type check struct {
	name string
	test func(node)
}

// inOrder runs checks as subtests, up to the first that fails.
func (n node) inOrder(checks []check) {
	for _, c := range checks {
		if !n.Run(c.name, func(t *testing.T) { c.test(n.with(t)) }) {
			n.FailNow()
		}
	}
}

// TestPod covers what a pod's spec can ask of a node, on one board. A scene
// alone: -run TestPod/NAME.
func TestPod(t *testing.T) {
	if arch() != board.ARM64 {
		t.Skip("nothing in it depends on the architecture: the arm64 board runs it")
	}
	n := boot(t, board.VMOptions{MemoryMB: 1024, Files: podFiles(t)})
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) { n.with(t).play(s) })
	}
}

// podFiles are put into the board of TestPod.
func podFiles(t *testing.T) []board.File {
	return []board.File{
		{Path: imagesDir + "/program.tar", Mode: 0o644, Data: programArchive(t)},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(podConfig)},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte("TINYLET_ARGS=\"--config /etc/tinylet/config.yaml --node-labels=disk=flash\"\n")},
		{Path: objectsDir + "/base.yaml", Mode: 0o600, Data: []byte(baseObjects)},
		{Path: "/var/lib/kubelet/seccomp/profiles/no-mkdir.json", Mode: 0o644, Data: []byte(noMkdir)},
	}
}

// play starts the pods of a scene, runs its checks, and removes all.
func (n node) play(s scene) {
	start := time.Now()
	n.sh("mkdir -p %s", sharedDir)
	if s.before != nil {
		s.before(n)
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		n.put(name+".yaml", manifest(s.pods[name]))
	}
	for _, c := range s.checks {
		n.Run(c.name, func(t *testing.T) { c.test(n.with(t)) })
	}
	n.tidy()
	if s.after != nil {
		s.after(n)
	}
	n.Logf("scene %s took %.0f s", s.name, time.Since(start).Seconds())
}

// tidy removes all pods and looks for what they left behind.
func (n node) tidy() {
	n.Helper()
	n.sh("rm -rf %s/*", manifestDir)
	start := time.Now()
	for {
		pods, err := n.pods()
		if err == nil && len(pods) == 0 {
			n.Logf("all pods gone: after %.1f s", time.Since(start).Seconds())
			break
		}
		if time.Since(start) > patience {
			n.Fatalf("want all pods gone; still there after %s: %q, %v\n%s", patience, slices.Sorted(maps.Keys(pods)), err, n.evidence())
		}
		n.breathe(start)
	}
	n.nothingLeft()
}

// evidence is what the board says of its containers.
func (n node) evidence() string {
	out, err := n.vm.Run(n.ctx, "sh", "-c", "tinylet ps; ctr -n k8s.io t ls; ps; tail -n 30 /var/log/containerd.log; tail -n 80 "+agentLog)
	if err != nil {
		return err.Error()
	}
	return string(out.Stdout)
}

// nothingLeft fails for containers, folders, logs and mounts of removed pods.
// It gives the agent a minute, as clean-up may come after a pod is forgotten.
func (n node) nothingLeft() {
	n.Helper()
	const script = `ctr -n k8s.io c ls -q
for d in /var/lib/kubelet/pods /var/log/pods /var/log/containers; do find $d -mindepth 1 -maxdepth 3 2>/dev/null; done
grep -E '/var/lib/kubelet/(pods|plugins)/' /proc/mounts`
	left := ""
	for range 30 {
		if left = n.sh("%s; true", script); left == "" {
			n.Log("nothing is left of the pods: no container, folder, log or mount")
			return
		}
		n.sh("sleep 2")
	}
	n.Errorf("removed pods left behind:\n%s", left)
}

// object writes a file of objects, in one step.
func (n node) object(name, text string) {
	n.Helper()
	if err := n.vm.Put(n.ctx, path.Join(objectsDir, name), strings.NewReader(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// entry is a line that the program's trap wrote.
type entry struct {
	at        time.Time
	who, word string
}

// trapped are the lines of a file that traps share, in their order.
func (n node) trapped(file string) []entry {
	n.Helper()
	var out []entry
	for line := range strings.Lines(n.sh("cat %s 2>/dev/null; true", path.Join(sharedDir, file))) {
		var ns int64
		var e entry
		if _, err := fmt.Sscan(line, &ns, &e.who, &e.word); err != nil {
			n.Fatalf("line %q of %s: %v", line, file, err)
		}
		e.at = time.Unix(0, ns)
		out = append(out, e)
	}
	return out
}

// words are entries as "WHO WORD".
func words(entries []entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.who+" "+e.word)
	}
	return out
}
