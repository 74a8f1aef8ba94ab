package podsync

import (
	"testing"

	"github.com/tinylet/tinylet/agent/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// A quota that is switched off is no step of a resize.
func TestNoQuotaIsNoneForAResize(t *testing.T) {
	wanted := wantedGroup(&cgroups.Resources{CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: cgroups.Unlimited, Period: 100000}})
	if wanted.CPUQuota != resize.Known(0) || wanted.CPUWeight != resize.Known(39) {
		t.Errorf("%+v", wanted)
	}
}
