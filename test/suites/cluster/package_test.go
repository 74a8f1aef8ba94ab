//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/test/harness/board"
)

const (
	journalFile = "/var/lib/kubelet/tinylet/journal/journal"
	upgradeDir  = "/var/lib/tinylet/upgrade"
)

// TestPackageNode joins a Debian board with the packages of the directories that BOARD_DEBS
// names, and upgrades and downgrades them while pods run. The journal of the version in next
// has another format than those of old and new.
func TestPackageNode(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it needs packages: make test-deb runs it, with BOARD_DEBS set")
	}
	l := prepareBoard(t, board.Options{Systemd: true, Stock: board.StockDebian, Dpkg: true})
	var packages []board.File
	for _, version := range []string{"old", "new", "next"} {
		found, err := filepath.Glob(filepath.Join(dir, version, "tinylet_*.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages of version %s: %v, %v; want one", version, found, err)
		}
		packages = append(packages,
			board.File{Path: "/root/" + version + ".deb", Mode: 0o644, Source: found[0]},
			board.File{Path: "/root/" + version, Mode: 0o755, Source: filepath.Join(dir, version, "tinylet-"+string(arch()))})
	}
	l.vm = l.start(packages)
	for _, s := range []struct {
		name string
		test func(lab)
	}{
		{"join", lab.packageJoins},
		{"upgrade", lab.packageUpgraded},
		{"a journal of the former version", lab.packageFormerJournal},
		{"a journal of the next version", lab.packageNextJournal},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.test(l.with(t)) }) {
			t.FailNow()
		}
	}
}

// dpkg installs the package of a version. The installation of one that does not start fails.
func (l lab) dpkg(version string) {
	l.Helper()
	l.Logf("dpkg -i %s.deb:\n%s", version, l.sh("DEBIAN_FRONTEND=noninteractive dpkg --force-confold -i /root/"+version+".deb 2>&1 || true"))
}

func (l lab) packageJoins() {
	if err := l.vm.WaitContainerd(l.Context()); err != nil {
		l.Fatal(err)
	}
	l.dpkg("old")
	if exit, _, _ := l.join("--server="+l.c.Server(), "--token="+l.c.Token(l.T), "--ca-cert-hash="+l.c.CAHash(l.T)); exit != 0 {
		l.Fatal("the board cannot join")
	}
	l.sh(l.service("restart"))
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(l.T, strings.Replace(web, "replicas: 10", "replicas: 3", 1))
	l.until("the pods run", func() string { return l.running("app=web", 3) })
	l.sh("tinylet check --quiet")
}

// settled waits until the agent runs the binary of a version, which is not on trial, and
// compares the pods with those before.
func (l lab) settled(version, undone string, before map[string]string) {
	l.Helper()
	l.until("the agent of the version "+version+" is confirmed", func() string {
		return l.sh("p=$(systemctl show -p MainPID --value tinylet); cmp /root/" + version + " /proc/$p/exe 2>&1; [ ! -e " + upgradeDir + "/trial ] || echo trial; true")
	})
	l.until("the node is Ready", l.nodeReady)
	l.until("the pods run", func() string { return l.running("app=web", 3) })
	if got := l.restarts(); fmt.Sprint(got) != fmt.Sprint(before) {
		l.Errorf("the containers are\n%v\nand were\n%v", got, before)
	}
	if got := l.sh("cat " + upgradeDir + "/undone 2> /dev/null || true"); (got != "") != (undone != "") || !strings.Contains(got, undone) {
		l.Errorf("the last upgrade: %q, want %q", got, undone)
	}
}

// restarts are those of the Deployment's pods.
func (l lab) restarts() map[string]string { return restarts(l.pods("app=web")) }

func (l lab) packageUpgraded() {
	before := l.restarts()
	l.dpkg("new")
	l.settled("new", "", before)
}

// packageFormerJournal installs a version that does not read the journal: the former
// version returns, and the journal is as it was.
func (l lab) packageFormerJournal() {
	before := l.restarts()
	version := "head -c 12 " + journalFile + " | od -An -tx1; ls -l " + journalFile
	l.Log(l.sh(version))
	l.dpkg("next")
	l.settled("new", "the former one is back", before)
	if got := l.format(); got != "01" {
		l.Errorf("the journal has format %s", got)
	}
}

// format is the first byte of the journal's format.
func (l lab) format() string {
	l.Helper()
	return strings.TrimSpace(l.sh("od -An -tx1 -j8 -N1 " + journalFile))
}

// packageNextJournal downgrades below the journal's version: the newer version returns, and
// the journal has all pods after a reboot without a network.
func (l lab) packageNextJournal() {
	before := l.restarts()
	l.sh("systemctl stop tinylet && rm -rf " + filepath.Dir(journalFile))
	l.dpkg("next")
	l.settled("next", "", before)
	if got := l.format(); got != "02" {
		l.Errorf("the journal has format %s", got)
	}
	l.dpkg("new")
	l.settled("next", "the former one is back", before)
	if got := l.format(); got != "02" {
		l.Errorf("the journal has format %s after the downgrade", got)
	}
	// The journal was started while the pods ran. No container was created since.
	l.until("the journal has the Services", func() string {
		return l.sh("grep -aq object/Services/default/ " + journalFile + " || echo it has none")
	})
	names := sorted(l.onBoard("web-"))
	l.sh("sync")
	l.vm.Kill()
	<-l.vm.Ended()
	l.c.Partition(l.T, name)
	l.vm = l.reboot()
	l.until("the pods run without the cluster", func() string {
		for _, pod := range names {
			if got := l.onBoard("web-")[pod]; got != "Running 1/1" {
				return pod + " is " + got
			}
		}
		return ""
	})
	l.c.Heal(l.T, name)
	l.until("the node is Ready", l.nodeReady)
}
