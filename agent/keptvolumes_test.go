package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// csiVolume makes what a kubelet has of a CSI volume of a pod, mounted where
// that is allowed.
func (l *lab) csiVolume(uid types.UID) (dir, mount string) {
	l.t.Helper()
	dir = filepath.Join(l.cfg.Paths.Pods, string(uid), "volumes", "kubernetes.io~csi", "pvc-1")
	mount = filepath.Join(dir, "mount")
	if err := os.MkdirAll(mount, 0o750); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(`{"driverName":"disk.example.com"}`), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if unix.Mount("tmpfs", mount, "tmpfs", 0, "") == nil {
		l.t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	}
	return dir, mount
}

// kept counts the events VolumeKept, of pods and of the node.
func (l *lab) kept() (pods, node int) {
	for _, e := range l.agent.events.Recent() {
		switch {
		case e.Reason != "VolumeKept":
		case e.Pod == pod.Ref{}:
			node += e.Count
		default:
			pods += e.Count
		}
	}
	return pods, node
}

// TestTakeoverOfForeignVolumes: pods of a kubelet with volumes of CSI end under
// this agent.
func TestTakeoverOfForeignVolumes(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		gone, done := shell(t, "gone", "Always", "sleep infinity"), shell(t, "done", "Never", "sleep 60")
		l.want(gone, done)
		l.start()
		l.settle(10 * time.Second)
		l.kill()
		dir, mount := l.csiVolume(gone.UID)
		_, ofDone := l.csiVolume(done.UID)
		l.csiVolume("nobody-knows-it")
		l.start()
		l.settle(time.Second)
		if todo := l.agent.foreignVolumeRemedies(); len(todo) != 1 || !strings.Contains(todo[0], "nobody-knows-it") {
			t.Errorf("to do while the pods run: %q", todo)
		}
		l.want(done)
		l.settle(2 * time.Minute)
		if st := l.status(done.UID); st.Phase != v1.PodSucceeded {
			t.Errorf("phase %q of the pod that ended", st.Phase)
		}
		if st := l.status(gone.UID); st.Phase != "" {
			t.Errorf("phase %q of the pod that was removed", st.Phase)
		}
		if running := l.running(); len(running) > 0 {
			t.Errorf("running: %v", running)
		}
		for _, name := range []string{dir + "/vol_data.json", mount, ofDone} {
			if _, err := os.Stat(name); err != nil {
				t.Error(err)
			}
		}
		if entries, err := os.ReadDir(filepath.Join(l.cfg.Paths.Pods, string(gone.UID))); err != nil || len(entries) != 1 || entries[0].Name() != "volumes" {
			t.Errorf("the directory has %v, %v", entries, err)
		}
		if pods, node := l.kept(); pods != 2 || node != 2 {
			t.Errorf("%d events of pods, %d of the node", pods, node)
		}
		if todo := l.agent.foreignVolumeRemedies(); len(todo) != 3 || !strings.Contains(strings.Join(todo, "\n"), "kubernetes.io~csi/pvc-1 of driver disk.example.com") {
			t.Errorf("to do: %q", todo)
		}

		// It is not tried again and again.
		before, calls := len(l.agent.events.Recent()), l.changes()
		l.settle(time.Hour)
		if pods, node := l.kept(); pods != 2 || node != 2 || len(l.agent.events.Recent()) != before || l.changes() != calls {
			t.Errorf("after an hour %d and %d events, %d of all, %d changes", pods, node, len(l.agent.events.Recent()), l.changes()-calls)
		}

		// Somebody takes it away.
		_ = unix.Unmount(mount, 0)
		if err := os.Remove(dir + "/vol_data.json"); err != nil {
			t.Fatal(err)
		}
		l.settle(10 * time.Minute)
		if _, err := os.Lstat(filepath.Join(l.cfg.Paths.Pods, string(gone.UID))); !os.IsNotExist(err) {
			t.Errorf("the directory is there still: %v", err)
		}
	})
}
