package policy

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

func TestLayoutThresholds(t *testing.T) {
	at := func(s evictionapi.Signal, amount int64) evictionapi.Threshold {
		return evictionapi.Threshold{Signal: s, Value: evictionapi.Value{Amount: amount, Text: "x"}}
	}
	soft := at(evictionapi.NodeFsAvailable, 9)
	soft.Grace = 1
	softContainer := soft
	softContainer.Signal = evictionapi.ContainerFsAvailable
	in := []evictionapi.Threshold{at(evictionapi.MemoryAvailable, 1), at(evictionapi.NodeFsAvailable, 2), soft, at(evictionapi.NodeFsInodesFree, 3), at(evictionapi.ImageFsAvailable, 4), at(evictionapi.ImageFsInodesFree, 5), at(evictionapi.ContainerFsAvailable, 6)}
	node := []evictionapi.Threshold{
		at(evictionapi.MemoryAvailable, 1), at(evictionapi.NodeFsAvailable, 2), at(evictionapi.ContainerFsAvailable, 2), soft, softContainer,
		at(evictionapi.NodeFsInodesFree, 3), at(evictionapi.ContainerFsInodesFree, 3), at(evictionapi.ImageFsAvailable, 4), at(evictionapi.ImageFsInodesFree, 5),
	}
	image := []evictionapi.Threshold{
		at(evictionapi.MemoryAvailable, 1), at(evictionapi.NodeFsAvailable, 2), soft, at(evictionapi.NodeFsInodesFree, 3),
		at(evictionapi.ImageFsAvailable, 4), at(evictionapi.ContainerFsAvailable, 4), at(evictionapi.ImageFsInodesFree, 5), at(evictionapi.ContainerFsInodesFree, 5),
	}
	for _, tc := range []struct {
		imageFs, split bool
		layout         Layout
		want           []evictionapi.Threshold
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
		if d := gocmp.Diff([]evictionapi.Signal{evictionapi.ContainerFsAvailable}, ignored); d != "" {
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
	want := [evictionapi.NumSignals]lists{
		evictionapi.NodeFsAvailable: node, evictionapi.NodeFsInodesFree: node, evictionapi.ImageFsAvailable: image, evictionapi.ImageFsInodesFree: image,
		evictionapi.ContainerFsAvailable: container, evictionapi.ContainerFsInodesFree: container,
	}
	for s := range evictionapi.NumSignals {
		for l := OneFs; l <= SplitFs; l++ {
			if d := gocmp.Diff(want[s][l], Reclaims(s, l)); d != "" {
				t.Errorf("%v, layout %d (-want +got):\n%s", s, l, d)
			}
		}
	}
}
