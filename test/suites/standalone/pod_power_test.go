//go:build board

package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// everythingPod has every kind of volume; its container says what it finds.
const everythingPod = `
apiVersion: v1
kind: Pod
metadata: {name: everything}
spec:
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: settings}}
  - {name: secret, secret: {secretName: keys}}
  - {name: down, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: mixed, projected: {sources: [{configMap: {name: settings}}, {secret: {name: keys}}]}}
  - {name: host, hostPath: {path: /var/tmp/e2e/host, type: DirectoryOrCreate}}
  - {name: claim, persistentVolumeClaim: {claimName: claim-host}}
  - {name: local, persistentVolumeClaim: {claimName: claim-local}}
  - {name: image, image: {reference: "localhost/files:1", pullPolicy: Never}}
  initContainers:
  - {name: fill, image: busybox, command: [sh, -c, "mkdir -p /disk/x/y && echo deep > /disk/x/y/text; echo host > /host/text; sync; sleep 2"], volumeMounts: [{name: disk, mountPath: /disk}, {name: host, mountPath: /host}]}
  containers:
  - name: c
    image: busybox
    command: [sh, -c, "for f in /config/color /secret/password /down/name /mixed/password /host/text /claim/text /local/text /sub/text /color /image/dir/text; do echo $f $(cat $f); done; mkdir -p /disk/m /memory/m; echo all; exec sleep 100000"]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: memory, mountPath: /memory}
    - {name: config, mountPath: /config}
    - {name: secret, mountPath: /secret}
    - {name: down, mountPath: /down}
    - {name: mixed, mountPath: /mixed}
    - {name: host, mountPath: /host}
    - {name: claim, mountPath: /claim}
    - {name: local, mountPath: /local}
    - {name: image, mountPath: /image}
    - {name: disk, mountPath: /sub, subPath: x/y}
    - {name: disk, mountPath: /expr, subPathExpr: by-name/$(NAME)}
    - {name: config, mountPath: /color, subPath: color}
`

// everythingFound is what the container prints when all mounts are right.
const everythingFound = `/config/color blue
/secret/password s3cret
/down/name everything-board
/mixed/password s3cret
/host/text host
/claim/text host
/local/text local
/sub/text deep
/color blue
/image/dir/text from an image
all`

// cut is a moment at which the power goes.
type cut struct {
	name string
	// running says whether the pod runs before; else there is none.
	running bool
	act     func(node)
	after   time.Duration // from act to the cut
}

// cuts are in every phase of the pod's life, and while its data changes.
func cuts() []cut {
	put := func(n node) { n.put("everything.yaml", manifest(everythingPod)); n.sh("sync") }
	remove := func(n node) { n.sh("rm %s/everything.yaml; sync", manifestDir) }
	return []cut{
		{"the manifest was written", false, put, 300 * time.Millisecond},
		{"volumes are set up", false, put, 1200 * time.Millisecond},
		{"the sandbox is made", false, put, 2500 * time.Millisecond},
		{"the init container runs", false, put, 5 * time.Second},
		{"the container starts", false, put, 9 * time.Second},
		{"it runs", true, func(n node) { n.sh("sync") }, 2 * time.Second},
		{"its data changes", true, func(n node) {
			for _, color := range []string{"red", "blue", "red", "blue"} {
				n.object("base.yaml", strings.Replace(baseObjects, "blue", color, 1))
				n.sh("sync; sleep 0.5")
			}
		}, 500 * time.Millisecond},
		{"the agent starts again", true, func(n node) { n.sh("/etc/init.d/S50tinylet restart") }, time.Second},
		{"its containers end", true, remove, 700 * time.Millisecond},
		{"its volumes are taken down", true, remove, 3500 * time.Millisecond},
	}
}

// TestPodPowerCut cuts the power ten times, each time in another phase of a
// pod with every kind of volume. The pod comes back with its mounts right, or
// is gone without a trace.
func TestPodPowerCut(t *testing.T) {
	if os.Getenv("BOARD_POWER") == "" {
		t.Skip("ten boots take long: make e2e-power runs it, with BOARD_POWER set")
	}
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := board.NewDisk(t.Context(), prepare(t), disk); err != nil {
		t.Fatal(err)
	}
	o := board.VMOptions{Disk: disk, DiskCache: "none", MemoryMB: 768, Files: podFiles(t)}
	n := boot(t, o)
	n.sh(`mkdir -p %[1]s/pv-host %[1]s/pv-local && echo host > %[1]s/pv-host/text && echo local > %[1]s/pv-local/text`, sharedDir)
	n.object("volumes.yaml", volumeObjects)
	n.sh("sync")
	for _, c := range cuts() {
		ok := t.Run(c.name, func(t *testing.T) {
			before := n.with(t)
			before.reach(c.running)
			c.act(before)
			select { // the board's own time is not asked for: the cut is to be sudden
			case <-time.After(c.after):
			case <-n.ctx.Done():
				t.Fatal(n.ctx.Err())
			}
			before.vm.Kill()
		})
		if !ok {
			return
		}
		n = bootDisk(t, board.VMOptions{Disk: disk, DiskCache: "none", MemoryMB: 768})
		t.Run(c.name+": after the cut", func(t *testing.T) { n.with(t).recovered() })
	}
	n.reach(false)
}

// reach brings the board into a state without the pod, or with it running.
func (n node) reach(running bool) {
	n.Helper()
	n.object("base.yaml", baseObjects)
	if !running {
		n.tidy()
		return
	}
	if n.sh("ls %s", manifestDir) == "" {
		n.put("everything.yaml", manifest(everythingPod))
	}
	n.pod("everything").status("Running")
}

// recovered checks what the power cut left: whether the manifest is on the
// disk decides whether there is to be a pod.
func (n node) recovered() {
	n.Helper()
	if n.sh("ls %s", manifestDir) == "" {
		n.tidy()
		return
	}
	n.object("base.yaml", baseObjects) // it may have been cut short of a change
	p := n.pod("everything")
	p.status("Running")
	said := p.logged("c", "all")
	if strings.Contains(said, "/config/color red") { // the data of before the cut, for a start: it follows
		said = strings.NewReplacer("/config/color red", "/config/color blue", "/color red", "/color blue").Replace(said)
	}
	said = said[strings.LastIndex(said, "/config/color"):]
	p.same("what the container finds", strings.Split(everythingFound, "\n"), strings.Split(said, "\n"))
	p.same("mounts that are there twice", "", n.sh("awk '$2 ~ \"^/var/lib/kubelet/pods/\" {print $2}' /proc/mounts | sort | uniq -d"))
	p.same("pod folders", "1", n.sh("ls /var/lib/kubelet/pods | wc -l"))
	p.same("tasks of a sandbox and a container", 2, len(n.tasks()))
}
