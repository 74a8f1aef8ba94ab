package policy

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestSignals(t *testing.T) {
	for s := MemoryAvailable; s < Signals; s++ {
		if got, ok := SignalOf(s.String()); !ok || got != s {
			t.Errorf("%q is read as %d, %t", s, got, ok)
		}
		if s.Resource() == "" || s.conditions() == (Conditions{}) {
			t.Errorf("%q has no resource or no condition", s)
		}
	}
	for _, s := range []Signal{0, Signals, 255} {
		if s.String() != "unknown" || s.Resource() != "" || s.conditions() != (Conditions{}) {
			t.Errorf("%d is a signal", s)
		}
	}
	if _, ok := SignalOf(""); ok {
		t.Error("the empty name is a signal")
	}
}

func TestLayoutThresholds(t *testing.T) {
	at := func(s Signal, amount int64) Threshold {
		return Threshold{Signal: s, Value: Value{Amount: amount, Text: "x"}}
	}
	soft := at(NodeFsAvailable, 9)
	soft.Grace = 1
	softContainer := soft
	softContainer.Signal = ContainerFsAvailable
	in := []Threshold{at(MemoryAvailable, 1), at(NodeFsAvailable, 2), soft, at(NodeFsInodesFree, 3), at(ImageFsAvailable, 4), at(ImageFsInodesFree, 5), at(ContainerFsAvailable, 6)}
	node := []Threshold{
		at(MemoryAvailable, 1), at(NodeFsAvailable, 2), at(ContainerFsAvailable, 2), soft, softContainer,
		at(NodeFsInodesFree, 3), at(ContainerFsInodesFree, 3), at(ImageFsAvailable, 4), at(ImageFsInodesFree, 5),
	}
	image := []Threshold{
		at(MemoryAvailable, 1), at(NodeFsAvailable, 2), soft, at(NodeFsInodesFree, 3),
		at(ImageFsAvailable, 4), at(ContainerFsAvailable, 4), at(ImageFsInodesFree, 5), at(ContainerFsInodesFree, 5),
	}
	for _, tc := range []struct {
		imageFs, split bool
		layout         Layout
		want           []Threshold
	}{
		{layout: OneFs, want: node},
		{split: true, layout: OneFs, want: node},
		{imageFs: true, layout: ImageFs, want: image},
		{imageFs: true, split: true, layout: SplitFs, want: node},
	} {
		l := LayoutOf(tc.imageFs, tc.split)
		if l != tc.layout {
			t.Errorf("the layout of %t, %t is %d", tc.imageFs, tc.split, l)
		}
		got, ignored := l.Thresholds(in)
		if d := gocmp.Diff(tc.want, got); d != "" {
			t.Errorf("layout %d (-want +got):\n%s", l, d)
		}
		if d := gocmp.Diff([]Signal{ContainerFsAvailable}, ignored); d != "" {
			t.Errorf("layout %d, ignored (-want +got):\n%s", l, d)
		}
	}
}

func TestReclaims(t *testing.T) {
	containers, images := DeadContainers, UnusedImages
	type lists [3][]Reclaim // by layout
	node := lists{OneFs: {containers, images}, SplitFs: {containers}}
	image := lists{{containers, images}, {containers, images}, {images}}
	container := lists{{containers, images}, {containers, images}, {containers}}
	want := [Signals]lists{
		NodeFsAvailable: node, NodeFsInodesFree: node, ImageFsAvailable: image, ImageFsInodesFree: image,
		ContainerFsAvailable: container, ContainerFsInodesFree: container,
	}
	for s := range Signals {
		for l := OneFs; l <= SplitFs; l++ {
			if d := gocmp.Diff(want[s][l], Reclaims(s, l)); d != "" {
				t.Errorf("%v, layout %d (-want +got):\n%s", s, l, d)
			}
		}
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
		list, err := Parse(Config{Hard: got})
		if err != nil || list[0].Value.Amount != HardMemory(tc.memory*mi) {
			t.Errorf("%d MiB: %v, %v", tc.memory, list, err)
		}
	}
}
