package image

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// candidate is a present image and what is known of its use.
type candidate struct {
	image *runtimeapi.Image
	spell
	// free says that it is neither in use nor pinned.
	free bool
}

// policy decides what goes (freeOldImages and freeSpace in
// pkg/kubelet/images/image_gc_manager.go).
type policy struct {
	now, began     time.Time
	minAge, maxAge time.Duration
}

// tooOld are the images that were not used for longer than maxAge, and the
// rest. As long as the agent has not run for maxAge it cannot know.
func (p policy) tooOld(images []candidate) (old, rest []candidate) {
	if p.maxAge == 0 || p.now.Sub(p.began) <= p.maxAge {
		return nil, images
	}
	for _, c := range images {
		last := c.used
		if last.Before(c.detected) {
			last = c.detected // what was never used was new then
		}
		if c.free && p.now.Sub(last) > p.maxAge {
			old = append(old, c)
		} else {
			rest = append(rest, c)
		}
	}
	return old, rest
}

// bySpace are the images that may go for space, those first that were not
// used for the longest time, then those known for the longest. ripens is when
// the next one may that is too young now; 0 is none.
func (p policy) bySpace(images []candidate) (ripe []candidate, ripens time.Duration) {
	for _, c := range images {
		if !c.free {
			continue
		}
		if left := p.minAge - p.now.Sub(c.detected); left > 0 {
			if ripens == 0 || left < ripens {
				ripens = left
			}
			continue
		}
		ripe = append(ripe, c)
	}
	slices.SortStableFunc(ripe, func(a, b candidate) int {
		if order := a.used.Compare(b.used); order != 0 {
			return order
		}
		return a.detected.Compare(b.detected)
	})
	return ripe, ripens
}
