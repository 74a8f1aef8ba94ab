package plan

import "testing"

// A resize that requires a restart is planned like a changed spec, with the
// message of the resize.
func TestResizedContainersStartAnew(t *testing.T) {
	const why = "Container a resize requires restart"
	up := observed(ready("s0", 0), running("a7", "a", count(7)), running("b0", "b"))
	got := Sync(Input{Pod: basePod(), Observed: up, Now: now, Hash: hashOf, Resized: map[string]string{"a7": why, "gone": why}})
	diff(t, Actions{
		SandboxID: "s0",
		Kill:      []Kill{kill("a7", "a", why)},
		Start:     []Start{start("a", 8, initialBackoff)},
	}, got)
}
