package evictionapi

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

func TestSignals(t *testing.T) {
	for s := MemoryAvailable; s < NumSignals; s++ {
		if got, ok := SignalOf(s.String()); !ok || got != s {
			t.Errorf("%q is read as %d, %t", s, got, ok)
		}
		if s.Resource() == "" || s.Conditions() == (Conditions{}) {
			t.Errorf("%q has no resource or no condition", s)
		}
	}
	for _, s := range []Signal{0, NumSignals, 255} {
		if s.String() != "unknown" || s.Resource() != "" || s.Conditions() != (Conditions{}) {
			t.Errorf("%d is a signal", s)
		}
	}
	if _, ok := SignalOf(""); ok {
		t.Error("the empty name is a signal")
	}
}

func TestDefaultHard(t *testing.T) {
	for _, tc := range []struct {
		memory int64 // MiB
		want   string
	}{
		{0, "100Mi"},
		{-1, "100Mi"},
		{1, "1Mi"},
		{32, "8Mi"},
		{64, "16Mi"},
		{128, "16Mi"},
		{230, "16Mi"}, // what a kernel leaves of 256 MB
		{256, "16Mi"},
		{480, "30Mi"},
		{512, "32Mi"},
		{1024, "64Mi"},
		{1600, "100Mi"},
		{2048, "100Mi"},
		{4096, "100Mi"},
		{8192, "100Mi"},
		{1 << 40, "100Mi"},
	} {
		got := DefaultHard(tc.memory * mi)
		want := texts{"memory.available": tc.want, "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%d MiB (-want +got):\n%s", tc.memory, d)
		}
		if _, err := Parse(&kubelet.KubeletConfiguration{EvictionHard: got}); err != nil {
			t.Errorf("%d MiB: %v", tc.memory, err)
		}
	}
}
