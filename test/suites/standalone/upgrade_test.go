//go:build board

package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// upgradeSteps are run in this order, on one board.
var upgradeSteps = []check{
	{"what is no binary is refused", upgradeRefused},
	{"upgrade", func(n node) { upgradeConfirmed(n, "new") }},
	{"downgrade", func(n node) { upgradeConfirmed(n, "old") }},
	{"a binary that does not start", func(n node) { upgradeUndone(n, "exit 1") }},
	{"a binary that hangs", upgradeHangs},
	{"a power cut during the trial", upgradeCut},
}

// TestUpgradeCommand replaces the agent with tinylet upgrade on a board with BusyBox init,
// by the versions in the directory that BOARD_DEBS names.
func TestUpgradeCommand(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it needs two versions of the binary: make test-deb runs it, with BOARD_DEBS set")
	}
	binary := func(version string) string { return filepath.Join(dir, version, "tinylet-"+string(arch())) }
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := board.NewDisk(t.Context(), prepare(t), disk); err != nil {
		t.Fatal(err)
	}
	n := bootDisk(t, board.VMOptions{
		MemoryMB: 512, Disk: disk, DiskCache: "none",
		Files: append(board.TinyletFiles(binary("old")),
			board.File{Path: "/root/old", Mode: 0o755, Source: binary("old")},
			board.File{Path: "/root/new", Mode: 0o755, Source: binary("new")}),
	})
	n.put("server.yaml", sleeper("server", 1))
	n.eventually(patience, "the pod is ready", isReady("server"))
	n.inOrder(upgradeSteps)
	n = bootDisk(t, board.VMOptions{MemoryMB: 512, Disk: disk, DiskCache: "none"})
	n.eventually(patience, "the pod is ready after the power cut", isReady("server"))
	n.eventually(patience, "the binary is confirmed", confirmed(n))
	n.versionIs("new")
	n.clear()
}

// upgrade runs tinylet upgrade, and returns its exit code and what it printed.
func (n node) upgrade(file string) (exit int, out string) {
	n.Helper()
	start := time.Now()
	r, err := n.vm.Run(n.ctx, "tinylet", "upgrade", file)
	if err != nil {
		n.Fatal(err)
	}
	out = string(r.Stdout) + string(r.Stderr)
	n.Logf("tinylet upgrade %s: %d after %.1f s\n%s", file, r.Exit, time.Since(start).Seconds(), out)
	return r.Exit, out
}

// versionIs compares the installed binary and the agent that runs with a version of /root.
func (n node) versionIs(version string) {
	n.Helper()
	n.sh("cmp /root/%s /usr/bin/tinylet && cmp /root/%[1]s /proc/$(pidof tinylet)/exe", version)
}

// confirmed is a condition: no binary is on trial.
func confirmed(n node) func(map[string]cli.PodDocument) string {
	return func(map[string]cli.PodDocument) string {
		return n.sh("cat /var/lib/tinylet/upgrade/trial /usr/libexec/tinylet/former 2>/dev/null | head -c 20 || true")
	}
}

func upgradeRefused(n node) {
	for file, want := range map[string]string{
		"/root/none":    "no such file",
		"/etc/hostname": "is no tinylet",
		"/bin/busybox":  "is no tinylet",
	} {
		if exit, out := n.upgrade(file); exit == 0 || !strings.Contains(out, want) {
			n.Errorf("upgrade to %s: want an error with %q", file, want)
		}
	}
	n.versionIs("old")
	n.sh("test ! -e /var/lib/tinylet/upgrade/trial && test ! -e /usr/libexec/tinylet/former")
}

func upgradeConfirmed(n node, version string) {
	before, tasks := n.server(), n.tasks()
	if exit, out := n.upgrade("/root/" + version); exit != 0 || !strings.Contains(out, "confirmed") {
		n.Error("the upgrade is not confirmed")
	}
	n.versionIs(version)
	n.same(before, n.eventually(patience, "the pod is ready", isReady("server"))["server"], tasks)
	n.sh("test ! -e /var/lib/tinylet/upgrade/trial && test ! -e /usr/libexec/tinylet/former")
}

// upgradeUndone installs a binary that checks the node well, and does not work as its agent.
func upgradeUndone(n node, agent string) {
	before, tasks := n.server(), n.tasks()
	n.sh("printf '#!/bin/sh\\ncase $1 in version|check) exec /root/new \"$@\";; esac\\n%s\\n' > /root/bad && chmod +x /root/bad", agent)
	if exit, out := n.upgrade("/root/bad"); exit == 0 || !strings.Contains(out, "the former one is back") {
		n.Error("the upgrade is not undone")
	}
	n.same(before, n.eventually(patience, "the pod is ready", isReady("server"))["server"], tasks)
	n.versionIs("old")
	if status := n.sh("tinylet status"); !strings.Contains(status, "the former one is back") {
		n.Errorf("the status does not have that an upgrade was undone:\n%s", status)
	}
}

// upgradeHangs installs a binary that hangs. It is ended after 7 minutes; this test has no
// time for that.
func upgradeHangs(n node) {
	n.sh("mkdir -p /etc/default && echo export TINYLET_UPGRADE_SECONDS=20 > /etc/default/tinylet && /etc/init.d/S50tinylet restart")
	n.eventually(patience, "the pod is ready", isReady("server"))
	upgradeUndone(n, "exec sleep 100000")
	n.sh("rm /etc/default/tinylet && /etc/init.d/S50tinylet restart")
	n.eventually(patience, "the pod is ready", isReady("server"))
}

// upgradeCut cuts the power when the new binary has started.
func upgradeCut(n node) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.vm.Run(n.ctx, "tinylet", "upgrade", "/root/new") // ends with the board
	}()
	n.eventually(patience, "the new binary runs", func(map[string]cli.PodDocument) string {
		return n.sh("for p in $(pidof tinylet); do cmp -s /root/new /proc/$p/exe && exit 0; done; echo another binary runs")
	})
	n.vm.Kill()
	<-done
}
