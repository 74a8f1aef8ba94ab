//go:build adopt

package handover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/test/suites/handover/inventory"
)

// The agents get this long to do what they should not, after the pods are in
// their states: the stock kubelet collects garbage each minute, looks after
// orphans each 2 s and resyncs each pod in 90 s at most.
const (
	kubeletMinutes = 2 * time.Minute
	tinyletMinutes = time.Minute
)

// TestAdoption hands the same pods from one agent to the other and back. The
// steps build on each other: the first that fails ends the test.
func TestAdoption(t *testing.T) {
	l := newLab(t)
	l.stopTinylet()

	var byKubelet, byTinylet *inventory.Inventory
	l.step("a stock kubelet starts the pods", func() {
		l.putManifests()
		k := l.startKubelet()
		l.kubeletSettles()
		l.refused()
		byKubelet = l.inventory()
		k.stop()
	})
	l.step("tinylet adopts them", func() {
		l.startTinylet()
		l.tinyletSettles()
		l.wait(tinyletMinutes)
		after := l.inventory()
		l.same(byKubelet, after)
		l.psShows(after)
	})
	l.step("tinylet removes what the kubelet started", func() {
		l.removeManifests()
		l.nothingLeft()
	})
	l.step("tinylet starts the same pods afresh", func() {
		l.putManifests()
		l.tinyletSettles()
		byTinylet = l.inventory()
		l.psShows(byTinylet)
		if d := cmp.Diff(configs(byKubelet), configs(byTinylet)); d != "" {
			t.Errorf("configs of the stock kubelet (-) and of tinylet (+) differ:\n%s", d)
		}
		l.stopTinylet()
	})
	var k *stockKubelet
	l.step("a stock kubelet adopts them", func() {
		l.forgetKubelet()
		k = l.startKubelet()
		l.kubeletSettles()
		l.wait(kubeletMinutes)
		after := l.inventory()
		l.same(byTinylet, after)
		k.content()
		byTinylet = after
	})
	l.step("tinylet gets them back", func() {
		k.stop()
		l.startTinylet()
		l.tinyletSettles()
		l.wait(tinyletMinutes)
		after := l.inventory()
		l.same(byTinylet, after)
		l.psShows(after)
		l.stopTinylet()
	})
	l.step("a stock kubelet removes what tinylet started", func() {
		k = l.startKubelet()
		l.kubeletSettles()
		l.removeManifests()
		l.nothingLeft()
		k.stop()
	})
}

// same fails the test unless the sandboxes and containers of the later
// inventory are those of the earlier one, in the same states and processes.
// Only a container in a crash loop may have gone on.
func (l *lab) same(before, after *inventory.Inventory) {
	l.t.Helper()
	if d := cmp.Diff(standing(before), standing(after)); d != "" {
		l.t.Fatalf("what runs, before (-) and after (+) the change of agents:\n%s", d)
	}
	crashed, crashes := attempts(before), attempts(after)
	switch last := crashes[len(crashes)-1]; {
	case last < crashed[len(crashed)-1]:
		l.t.Fatalf("the crash loop went back from attempts %v to %v", crashed, crashes)
	case len(crashes) > 2:
		l.t.Fatalf("the crash loop keeps attempts %v: one and the one before are enough", crashes)
	case len(crashes) == 2 && crashes[0] == crashes[1]:
		l.t.Fatalf("the crash loop has attempt %d twice", last)
	}
	l.say("the same %d sandboxes and %d containers; crash loop from attempts %v to %v",
		len(after.Sandboxes), len(after.Containers), crashed, crashes)
	for _, line := range standing(after) {
		l.say("  %s", line)
	}
}

// standing describes all that must not change.
func standing(inv *inventory.Inventory) []string {
	var out []string
	for _, s := range inv.Sandboxes {
		state := "gone"
		if s.Ready {
			state = "ready"
		}
		out = append(out, fmt.Sprintf("%s sandbox %d %s: pid %d, ip %q, id %.12s", s.Pod, s.Attempt, state, s.PID, s.IP, s.ID))
	}
	for _, c := range newest(inv) {
		if loops(c.Pod) {
			continue
		}
		out = append(out, fmt.Sprintf("%s/%s %d %s: pid %d, exit code %d, id %.12s", c.Pod, c.Name, c.Attempt, c.State, c.PID, c.ExitCode, c.ID))
	}
	return out
}

// newest are the containers that stand for their names now: the last attempt
// of each, and all that run. Older dead ones are evidence, of which the stock
// kubelet keeps less than tinylet.
func newest(inv *inventory.Inventory) []inventory.Container {
	var out []inventory.Container
	for i, c := range inv.Containers { // ordered by pod, name and attempt
		last := i+1 == len(inv.Containers) || inv.Containers[i+1].Pod != c.Pod || inv.Containers[i+1].Name != c.Name
		if last || c.State == "RUNNING" {
			out = append(out, c)
		}
	}
	return out
}

// attempts are the crash loop's containers that are still there.
func attempts(inv *inventory.Inventory) []uint32 {
	var out []uint32
	for _, c := range inv.Containers {
		if loops(c.Pod) {
			out = append(out, c.Attempt)
		}
	}
	return out
}

func loops(pod string) bool { return strings.HasPrefix(pod, "crash-") }
