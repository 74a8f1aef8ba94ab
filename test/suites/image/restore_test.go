//go:build cluster

package image

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

const (
	debianName = "edge-debian"
	// undisturbed is how long a board that starts is not asked anything, which would cost
	// it processor time.
	undisturbed = 30 * time.Second
	// starts prints the time of each pod's start, in ticks of 10 ms since the start of the
	// kernel (proc_pid_stat(5), field 22).
	starts = `for p in /proc/[0-9]*; do case "$(tr '\0' ' ' < $p/cmdline)" in "sleep 100000 ") sed 's/.*) //' $p/stat | cut -d ' ' -f 20;; esac; done 2> /dev/null; true`
)

// TestRestore measures how long after the start of its kernel a board has ten pods again
// after a power cut: the image, and the board with Debian's packages and the same overlay,
// agent and pods. They run by turns, ROUNDS times, beside the same control plane.
func TestRestore(t *testing.T) {
	l := newLab(t)
	l.putProvisioning(l.provisioning())
	disk := l.newDisk()
	l.firstBoot(disk)
	debian := newDebian(l)
	program, err := debian.vm.Get(t.Context(), "/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := imagetar.Busybox(board.BusyboxImage, l.goarch(), program)
	if err != nil {
		t.Fatal(err)
	}
	l.importImage("busybox", busybox)

	for _, node := range []string{name, debianName} {
		l.c.Apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      nodeName: %[1]s
      containers: [{name: main, image: "%[3]s", command: [sleep, "100000"]}]
`, node, pods, board.BusyboxImage))
		l.c.Must(t, "wait", "--for=condition=Available", "deployment/"+node, "--timeout=4m")
	}
	debian.must("sync") // the agent and its configuration were installed long ago
	l.vm.Kill()
	debian.vm.Kill()
	<-debian.vm.Ended()

	var image, other []float64
	for n := range int(board.Number(t, "ROUNDS", 3)) {
		l.power(disk)
		image = append(image, l.lastStart(func() string { return l.sh(starts) }))
		l.vm.Kill()
		<-l.vm.Ended()
		debian.power(nil)
		other = append(other, l.lastStart(func() string { return debian.must(starts) }))
		debian.vm.Kill()
		<-debian.vm.Ended()
		t.Logf("round %d: ten pods %.2f s after the start of the kernel, with Debian's packages %.2f s", n+1, image[n], other[n])
	}
	t.Logf("median of %d: %.2f s, with Debian's packages %.2f s", len(image), median(image), median(other))
}

// lastStart waits for the ten pods, and returns when the last one started, in seconds.
func (l *lab) lastStart(ticks func() string) float64 {
	l.Helper()
	select {
	case <-l.Context().Done():
		l.Fatal(l.Context().Err())
	case <-time.After(undisturbed):
	}
	var last float64
	l.until("ten pods run again", func() string {
		all := strings.Fields(ticks())
		if len(all) != pods {
			return fmt.Sprintf("%d do", len(all))
		}
		for _, s := range all {
			n, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return err.Error()
			}
			last = max(last, n/100)
		}
		return ""
	})
	return last
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// debian is a board with Debian's packages and the overlay of the project.
type debian struct {
	l    *lab
	im   *board.Image
	disk string
	vm   *board.VM
}

// newDebian joins the board to the lab's cluster.
func newDebian(l *lab) *debian {
	l.Helper()
	d := &debian{l: l, disk: filepath.Join(l.TempDir(), "debian.qcow2")}
	var err error
	if d.im, err = board.Prepare(l.Context(), board.Options{Arch: l.im.Arch, Progress: lines{l.T}}); err != nil {
		l.Fatal(err)
	}
	if err := board.NewDisk(l.Context(), d.im, d.disk); err != nil {
		l.Fatal(err)
	}
	d.power(slices.Concat(board.TinyletFiles(filepath.Join("..", "..", "..", "bin", "tinylet-"+string(l.im.Arch))), []board.File{
		{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o644, Data: l.c.CA()},
		{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Data: l.c.Bootstrap(l.c.Server(), l.c.Token(l.T))},
		{Path: "/etc/hostname", Mode: 0o644, Data: []byte(debianName + "\n")},
	}))
	l.nodeReady(debianName)
	return d
}

func (d *debian) power(files []board.File) {
	d.l.Helper()
	vm, err := board.Boot(d.l.Context(), d.im, board.VMOptions{Disk: d.disk, Files: files, Network: d.l.c.BoardNet(d.l.T, debianName)})
	if err != nil {
		d.l.Fatal(err)
	}
	d.vm = vm
	d.l.root.Cleanup(func() {
		if err := vm.Close(); err != nil {
			d.l.root.Error(err)
		}
	})
}

func (d *debian) must(script string) string {
	d.l.Helper()
	out, err := d.vm.Shell(d.l.Context(), script)
	if err != nil {
		d.l.Fatal(err)
	}
	return out
}
