//go:build cluster

package bench

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// What TestRoom asks for: pods until less than roomLeft bytes are available, at
// most roomPods of them.
const (
	roomLeft = 100 << 20
	roomPods = 15
)

// Settling is how long memory is left alone before it is read.
const (
	roomSettle    = 2 * time.Minute // of a node without pods
	roomSettlePod = 10 * time.Second
)

// TestRoom measures how many pods a node of 256 MB has room for, with each agent
// in turn: the memory that is available without pods, and how many busybox pods
// run before less than 100 MiB are left, or before the agent rejects one. It fails
// when that cannot be measured.
func TestRoom(t *testing.T) {
	cl := controlplane.Start(t, controlplane.Options{})
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []agent{tinylet, kubelet} {
		t.Run(a.program, func(t *testing.T) {
			if _, err := os.Stat(a.binary); err != nil {
				t.Fatalf("%v; make bench-room builds it", err)
			}
			files := a.files(t, cl)
			if a == kubelet {
				files = append(files, stockFiles()...)
			}
			n := bootWith(t, cl, im, "room-"+a.program, a.program, installed(t, im, files))
			n.join()
			n.rest(roomSettle)
			available := n.sample().available
			t.Logf("%.1f MB are available without pods", float64(available)/1e6)
			pods := 0
			for ; available >= roomLeft && pods < roomPods; pods++ {
				if rejected := n.runs(fmt.Sprintf("room-%s-%d", a.program, pods)); rejected != "" {
					t.Logf("%d pods, the next one: %s", pods, rejected)
					return
				}
				n.rest(roomSettlePod)
				available = n.sample().available
				t.Logf("%.1f MB are available with %d pods", float64(available)/1e6, pods+1)
			}
			t.Logf("%d pods until less than %.1f MB are available", pods, roomLeft/1e6)
		})
	}
}

// installed are the options of a board of 256 MB with files. The programs of a
// kubelet are too large for the initial file system of one: they are put on its
// disk by a boot with more memory, in which no agent runs.
func installed(t *testing.T, im *board.Image, files []board.File) board.VMOptions {
	t.Helper()
	programs := []board.File{{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte("exit 0\n")}}
	o := board.VMOptions{MemoryMB: 256, Disk: filepath.Join(t.TempDir(), "disk.qcow2")}
	for _, f := range files {
		if f.Source != "" {
			programs = append(programs, f)
		} else {
			o.Files = append(o.Files, f)
		}
	}
	if err := board.NewDisk(t.Context(), im, o.Disk); err != nil {
		t.Fatal(err)
	}
	vm, err := board.Boot(t.Context(), im, board.VMOptions{MemoryMB: 1024, CPUs: 2, Disk: o.Disk, Files: programs})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := vm.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// runs makes a pod and waits until it runs. If the agent rejects it, runs returns
// the message of its status.
func (n node) runs(name string) (rejected string) {
	n.Helper()
	if err := n.request(n.Context(), http.MethodPost, podsPath, n.pod(name), nil); err != nil {
		n.Fatal(err)
	}
	for began := time.Now(); ; n.rest(time.Second) {
		var p corev1.Pod
		if err := n.request(n.Context(), http.MethodGet, podsPath+"/"+name, nil, &p); err != nil {
			n.Fatal(err)
		}
		if p.Status.Phase == corev1.PodRunning {
			return ""
		}
		if p.Status.Phase == corev1.PodFailed {
			return fmt.Sprintf("%s: %s", p.Status.Reason, p.Status.Message)
		}
		if time.Since(began) > patience {
			n.Fatalf("pod %s is %s after %v", name, p.Status.Phase, patience)
		}
	}
}
