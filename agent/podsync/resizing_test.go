package podsync

import (
	"testing"

	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/agent/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// TestReadShares has a runtime of the curve, by which 512 shares are a weight
// of 59, as by the line 1536 are.
func TestReadShares(t *testing.T) {
	const old, line = 59, 59
	if w := criconfig.CurvedCPUWeight(512); w != old {
		t.Fatalf("the curve makes %d of 512 shares", w)
	}
	for _, row := range []struct {
		name   string
		runs   int64 // shares, as the runtime tells them; 0 does not
		weight uint64
		memory int64 // limit
		noSwap bool
		want   int64
	}{
		{"not carried out", 512, old, 0, false, 512},
		{"carried out", 1536, criconfig.CurvedCPUWeight(1536), 0, false, 1536},
		{"carried out by a runtime of the line", 1536, line, 0, false, 1536},
		{"not carried out, and the runtime can without accounting of swap", 512, old, 0, true, 512},
		{"by hand", 512, line, 64 << 20, true, 1536},
		{"by hand, from another size", 256, line, 64 << 20, true, 1536},
		{"not by hand yet", 256, criconfig.CurvedCPUWeight(256), 64 << 20, true, 256},
		{"the runtime does not tell", 0, line, 0, false, 1536},
	} {
		t.Run(row.name, func(t *testing.T) {
			var a resize.Actual
			if row.runs > 0 {
				a.CPUShares = resize.Known(row.runs)
			}
			l := cgroups.Limits{CPUWeight: cgroups.Figure{Value: row.weight, Known: true}}
			n := &criconfig.Node{SwapAccounting: !row.noSwap}
			wanted := resize.Values{CPURequest: 1500, MemoryLimit: row.memory}
			if got := read(a, &l, &cgroups.Resources{CPUWeight: line}, wanted, n).CPUShares; got != resize.Known(row.want) {
				t.Errorf("%+v, want %d", got, row.want)
			}
		})
	}
}

// A quota that is switched off is no step of a resize.
func TestNoQuotaIsNoneForAResize(t *testing.T) {
	wanted := wantedGroup(&cgroups.Resources{CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: cgroups.Unlimited, Period: 100000}})
	if wanted.CPUQuota != resize.Known(0) || wanted.CPUWeight != resize.Known(39) {
		t.Errorf("%+v", wanted)
	}
}
