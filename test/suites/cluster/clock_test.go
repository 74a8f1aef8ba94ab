//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// unset is what a clock without a battery begins with.
var unset = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)

// TestClock starts boards without the time of day, and sets the clock of one
// that is a node.
func TestClock(t *testing.T) {
	l := prepareLab(t)
	l.date = unset
	l.vm = l.bootWith(joining(l.bootstrap(), board.File{Path: staticFile, Mode: 0o644, Data: []byte(static)}))
	l.run(t, step{"a new board in 1970", lab.joinsIn1970}, step{"the clock jumps", lab.clockJumps})
	l.sh("sync")
	l.vm.Kill()
	l.vm = l.bootWith(joining(nil))
	l.run(t, step{"a node in 1970", lab.startsIn1970})
}

// setClock sets the board's clock to this machine's, moved by offset.
func (l lab) setClock(offset time.Duration) {
	l.Helper()
	l.sh(fmt.Sprintf("date -u -s @%d", time.Now().Add(offset).Unix()))
}

// waitsForTime looks that a board in 1970 says so, and asks nobody for
// anything.
func (l lab) waitsForTime() {
	l.Helper()
	if year := l.sh("date -u +%Y"); year != "1970" {
		l.Fatalf("the board is in the year %s: nothing is tested", year)
	}
	l.logged("clock is behind, delay TLS")
	l.says("the clock is behind")
	l.says("has never answered")
	l.Logf("tinylet status:\n%s", l.sh("tinylet status || true"))
}

// timeComes sets the clock, and looks that the node goes on without a restart.
func (l lab) timeComes() {
	l.Helper()
	agent := l.agent()
	l.setClock(0)
	now := time.Now()
	l.logged("clock is set, continue TLS")
	l.until("the node is Ready", l.nodeReady)
	l.Logf("the clock is set: the node is Ready after %.1f s", time.Since(now).Seconds())
	if s := l.status(); strings.Contains(s.Cluster.Problem, "clock") {
		l.Errorf("status still says %s", s.Cluster.Problem)
	}
	if now := l.agent(); now != agent {
		l.Errorf("the agent is %s, and was %s", now, agent)
	}
}

func (l lab) joinsIn1970() {
	l.localRuns()
	l.waitsForTime()
	if exit, _, said := l.join("--server="+l.c.Server(), "--token="+l.c.Token(l.T), "--ca-cert-hash="+l.c.CAHash(l.T)); exit == 0 || !strings.Contains(said, "is this node's clock right (1970-01-01T") {
		l.Errorf("tinylet join does not point to the clock: %s", said)
	}
	l.timeComes()
	l.until("the static pod's mirror runs", func() string { return l.running("app=local", 1) })
	l.steady(2)
}

// clockJumps moves the clock of a running node, where it once was and where it
// never was.
func (l lab) clockJumps() {
	l.untouched(func() {
		lapses := l.lapses()
		for _, offset := range []time.Duration{time.Hour, 0} {
			l.setClock(offset)
			set := time.Now()
			for time.Since(set) < 70*time.Second { // longer than the lease and its grace
				if got := l.nodeReady(); got != "" {
					l.Errorf("%.0f s after the clock was moved to %v from the right time, the node is %s", time.Since(set).Seconds(), offset, got)
					break
				}
				time.Sleep(time.Second)
			}
			l.renewedSince(set)
			pod := fmt.Sprintf("after-%.0f", offset.Hours())
			l.c.Apply(l.T, single(pod, "exec sleep 100000"))
			l.until("a new pod runs", func() string { return l.running("app="+pod, 1) })
			l.c.Must(l.T, "delete", "pod", pod, "--grace-period=1", "--wait=false")
			l.gone("app=" + pod)
		}
		if n := l.lapses() - lapses; n != 0 {
			l.Errorf("the cluster missed the node %d times", n)
		}
	})
}

func (l lab) startsIn1970() {
	before := l.pods("app=steady")
	l.podsCameBack()
	l.until("both pods of the journal run", func() string {
		if got := l.onBoard("steady-"); len(got) != 2 || got[before[0].Name] != "Running 1/1" || got[before[1].Name] != "Running 1/1" {
			return fmt.Sprint(got)
		}
		return ""
	})
	l.waitsForTime()
	l.untouchedOnBoard(func() {
		l.timeComes()
		l.renewedSince(time.Now()) // what the cluster knew may be from before
		l.until("the pods are reported", func() string { return l.running("app in (steady,local)", 3) })
	})
}

// untouchedOnBoard runs do, and looks that the board has the same tasks then.
func (l lab) untouchedOnBoard(do func()) {
	l.Helper()
	const tasks = "ctr -n k8s.io task ls | sort"
	before := l.sh(tasks)
	do()
	if after := l.sh(tasks); after != before {
		l.Errorf("tasks\n%s\nwere\n%s", after, before)
	}
}
