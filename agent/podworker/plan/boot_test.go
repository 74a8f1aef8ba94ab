package plan

import (
	"testing"

	"github.com/tinylet/tinylet/agent/container"
)

// A sandbox of an earlier boot holds no address and nothing else.
func TestSandboxOfAnEarlierBoot(t *testing.T) {
	made := func(id string, attempt uint32, boot string) container.Sandbox {
		s := notReady(id, attempt)
		s.BootID = boot
		return s
	}
	for _, r := range []struct {
		name string
		boot string
		seen *container.Observed
		kill bool
	}{
		{name: "earlier", boot: "2", seen: observed(made("s0", 0, "1"), exited("a0", "a", 255))},
		{name: "two earlier ones", boot: "3", seen: observed(made("s1", 1, "2"), made("s0", 0, "1"), exited("a0", "a", 255))},
		{name: "this one", boot: "2", seen: observed(made("s0", 0, "2")), kill: true},
		{name: "one of each", boot: "2", seen: observed(made("s1", 1, "2"), made("s0", 0, "1"), exited("a0", "a", 255)), kill: true},
		{name: "not known of the sandbox", boot: "2", seen: observed(made("s0", 0, "")), kill: true},
		{name: "not known of the node", seen: observed(made("s0", 0, "1")), kill: true},
		{name: "something runs all the same", boot: "2", seen: observed(made("s0", 0, "1"), running("a0", "a")), kill: true},
	} {
		t.Run(r.name, func(t *testing.T) {
			got := Sync(Input{Pod: basePod(), Observed: r.seen, Now: now, Hash: hashOf, BootID: r.boot})
			if !got.CreateSandbox || got.KillPod != r.kill {
				t.Errorf("new sandbox %t, kill %t; want true, %t", got.CreateSandbox, got.KillPod, r.kill)
			}
		})
	}
}
