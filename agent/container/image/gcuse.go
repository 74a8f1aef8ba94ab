package image

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spell is since when an image is known, and when it was used last: the zero
// time is not since the agent's start.
type spell struct {
	detected, used time.Time
}

// uses is a set of images by what names them: IDs, and names in full.
type uses map[string]bool

func newUses(refs []string) uses {
	u := make(uses, len(refs))
	u.add(refs...)
	return u
}

func (u uses) add(refs ...string) {
	for _, ref := range refs {
		for _, key := range keysOf(ref) {
			u[key] = true
		}
	}
}

// keysOf are the spellings under which the runtime lists what is named so.
func keysOf(ref string) []string {
	n, err := ParseName(ref)
	if err != nil {
		return []string{ref} // an ID
	}
	keys := []string{ref, n.String()}
	if n.Digest != "" && n.Tag != "" {
		keys = append(keys, Name{Domain: n.Domain, Path: n.Path, Digest: n.Digest}.String())
	}
	return keys
}

// of says whether the image is in the set.
func (u uses) of(image *runtimeapi.Image) bool {
	if u[image.GetId()] {
		return true
	}
	for _, names := range [][]string{image.GetRepoTags(), image.GetRepoDigests()} {
		for _, name := range names {
			if u[name] {
				return true
			}
		}
	}
	return false
}

// noteUse remembers what pods use now, without a call of the runtime: so the
// order of use is known once the disk is full. The caller holds the lock.
func (g *GC) noteUse(now time.Time) {
	for _, ref := range g.cfg.InUse() {
		for _, key := range keysOf(ref) {
			g.used[key] = now
		}
	}
}

// lastUse is when an image was last noted to be in use.
func (g *GC) lastUse(image *runtimeapi.Image) time.Time {
	last := g.used[image.GetId()]
	for _, names := range [][]string{image.GetRepoTags(), image.GetRepoDigests()} {
		for _, name := range names {
			if at := g.used[name]; at.After(last) {
				last = at
			}
		}
	}
	return last
}

// list asks for all images and what uses them, and forgets those that are
// gone. The caller holds the lock.
func (g *GC) list(ctx context.Context, now time.Time) ([]candidate, error) {
	// The containers come first: what starts between the two is of an image
	// that a pod names.
	containers, err := g.cfg.Images.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("look for images in use: %w", err)
	}
	images, err := g.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("look for unused images: %w", err)
	}
	inUse := newUses(g.cfg.InUse())
	inUse.add(g.cfg.Keep...)
	for _, c := range containers {
		inUse.add(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage())
	}
	delete(inUse, "") // runtimes leave some of these out
	var out []candidate
	seen := make(map[string]spell, len(images))
	for _, image := range images {
		s, known := g.seen[image.GetId()]
		last := g.lastUse(image)
		if !known {
			s.detected = now
			switch {
			case !g.listed:
				s.detected = time.Time{} // it was there before the agent
			case !last.IsZero():
				s.detected = last // a pod had it then; lists are rare
			}
		}
		if last.After(s.used) {
			s.used = last
		}
		c := candidate{image: image, free: !inUse.of(image) && !image.GetPinned()}
		if !c.free {
			s.used = now
		}
		c.spell = s
		seen[image.GetId()] = s
		out = append(out, c)
	}
	// Uses are with the images now, but for those that are still to come.
	clear(g.used)
	g.seen, g.listed = seen, true
	g.noteUse(now)
	return out, nil
}

// displayName is what people call an image.
func displayName(image *runtimeapi.Image) string {
	for _, names := range [][]string{image.GetRepoTags(), image.GetRepoDigests()} {
		if len(names) > 0 {
			return names[0]
		}
	}
	return image.GetId()
}
