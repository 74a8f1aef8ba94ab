package resize_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func TestSort(t *testing.T) {
	small, large := asks("500m", "", "", ""), asks("1", "", "", "")
	full, fuller := asks("1", "1Gi", "1", "1Gi"), asks("2", "1Gi", "2", "1Gi")
	pending := func(name string, from, to v1.ResourceRequirements, since int64, options ...option) resize.Pending {
		wants := newPod(append(options, app("main", to))...)
		wants.Name = name
		p := resize.Pending{Pod: wants, Allocation: resize.FromSpec(newPod(app("main", from)))}
		if since > 0 {
			p.Since = time.Unix(since, 0)
		}
		return p
	}
	want := []resize.Pending{
		pending("shrinks", large, small, 9),
		pending("important", small, large, 9, prio(5)),
		pending("guaranteed", full, fuller, 9),
		pending("old", small, large, 1),
		pending("young", small, large, 2),
		pending("new", small, large, 0),
		pending("unimportant", small, large, 1, prio(-1)),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		got := slices.Clone(want)
		random.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		resize.Sort(got)
		for i := range got {
			if got[i].Pod != want[i].Pod {
				t.Fatalf("place %d has %s, want %s", i, got[i].Pod.Name, want[i].Pod.Name)
			}
		}
	}
}

// Resizes that increase nothing keep their order.
func TestSortIsStable(t *testing.T) {
	var list []resize.Pending
	for _, name := range []string{"a", "b", "c"} {
		p := newPod(app("main", asks("1", "", "", "")))
		p.Name = name
		list = append(list, resize.Pending{Pod: p, Allocation: resize.FromSpec(p), Since: time.Unix(int64('z'-name[0]), 0)})
	}
	resize.Sort(list)
	for i, name := range []string{"a", "b", "c"} {
		if list[i].Pod.Name != name {
			t.Errorf("place %d has %s, want %s", i, list[i].Pod.Name, name)
		}
	}
}
