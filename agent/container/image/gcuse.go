package image

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageRecord records when an image was detected and last used. A zero lastUsed means that
// no use was recorded since the agent's start. A zero detected means that the image was
// present at the first list.
type imageRecord struct {
	detected, lastUsed time.Time
}

// imageSet is a set of images, keyed by ID and by full name.
type imageSet map[string]bool

func newImageSet(refs []string) imageSet {
	u := make(imageSet, len(refs))
	u.add(refs...)
	return u
}

func (u imageSet) add(refs ...string) {
	for _, ref := range refs {
		for _, key := range lookupKeys(ref) {
			u[key] = true
		}
	}
}

// lookupKeys returns the spellings under which the runtime may list the image that
// ref refers to.
func lookupKeys(ref string) []string {
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

func (u imageSet) contains(image *runtimeapi.Image) bool {
	return slices.ContainsFunc(namesOf(image), func(name string) bool { return u[name] })
}

// namesOf returns the tags of an image, then its digests, then its ID.
func namesOf(image *runtimeapi.Image) []string {
	return slices.Concat(image.GetRepoTags(), image.GetRepoDigests(), []string{image.GetId()})
}

// recordUse records the images that pods use now, without a call to the runtime. So the
// order of use is known when the disk is full. The caller holds mu.
func (g *GC) recordUse(now time.Time) {
	for _, ref := range g.cfg.InUse() {
		for _, key := range lookupKeys(ref) {
			g.recentUses[key] = now
		}
	}
}

// lastUse returns when an image was last recorded as in use since the last list, or the zero
// time. The caller holds mu.
func (g *GC) lastUse(image *runtimeapi.Image) time.Time {
	var last time.Time
	for _, name := range namesOf(image) {
		if at := g.recentUses[name]; at.After(last) {
			last = at
		}
	}
	return last
}

// list lists all images with their use, and drops the records of removed
// images. The caller holds mu.
func (g *GC) list(ctx context.Context, now time.Time) ([]candidate, error) {
	// Containers are listed first: the image of a container that starts
	// between the two calls is named by a pod and thus in InUse.
	containers, err := g.cfg.Images.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	images, err := g.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	inUse := newImageSet(g.cfg.InUse())
	for _, c := range containers {
		inUse.add(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage())
	}
	delete(inUse, "") // runtimes leave some of these fields empty
	var out []candidate
	seen := make(map[string]imageRecord, len(images))
	for _, image := range images {
		s, known := g.records[image.GetId()]
		last := g.lastUse(image)
		if !known {
			s.detected = now
			switch {
			case !g.listed:
				s.detected = time.Time{} // it was present before the agent's start
			case !last.IsZero():
				s.detected = last // a pod used it then; lists are rare
			}
		}
		if last.After(s.lastUsed) {
			s.lastUsed = last
		}
		c := candidate{image: image, removable: !inUse.contains(image) && !image.GetPinned()}
		if !c.removable {
			s.lastUsed = now
		}
		c.imageRecord = s
		seen[image.GetId()] = s
		out = append(out, c)
	}
	// The uses are recorded with the images now. Keep only the current ones,
	// which may be of images that are not present yet.
	clear(g.recentUses)
	g.records, g.listed = seen, true
	g.recordUse(now)
	return out, nil
}

// displayName returns a tag of the image, else a digest, else its ID.
func displayName(image *runtimeapi.Image) string {
	return namesOf(image)[0]
}
