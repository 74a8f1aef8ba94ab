package image

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// candidate is a present image and its recorded use.
type candidate struct {
	image *runtimeapi.Image
	imageRecord
	// removable is set if the image is neither in use nor pinned.
	removable bool
}

// policy selects the images to remove (freeOldImages and freeSpace in
// pkg/kubelet/images/image_gc_manager.go).
type policy struct {
	now, began     time.Time
	minAge, maxAge time.Duration
}

// splitByAge divides images into those that were unused for longer than maxAge,
// and the rest. Until the agent has run for maxAge, none is too old: earlier
// use is unknown.
func (p policy) splitByAge(images []candidate) (old, rest []candidate) {
	if p.maxAge == 0 || p.now.Sub(p.began) <= p.maxAge {
		return nil, images
	}
	for _, c := range images {
		last := c.lastUsed
		if last.Before(c.detected) {
			last = c.detected // a never used image counts from its detection
		}
		if c.removable && p.now.Sub(last) > p.maxAge {
			old = append(old, c)
		} else {
			rest = append(rest, c)
		}
	}
	return old, rest
}

// bySpace returns the images that may be removed for space, ordered by last use, then by
// detection, oldest first. ripens is the time until the next image that is too young now
// reaches minAge. It is 0 if there is none.
func (p policy) bySpace(images []candidate) (ripe []candidate, ripens time.Duration) {
	for _, c := range images {
		if !c.removable {
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
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), a.detected.Compare(b.detected))
	})
	return ripe, ripens
}
