package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container/containerd"
)

// Image is an image with all its names.
type Image struct {
	// ID is the digest of the configuration.
	ID digest.Digest
	// Tags and Digests are the names with a tag and with a digest, sorted.
	Tags, Digests []string
	// Target is what the names refer to.
	Target ocispec.Descriptor
	// Size is that of the compressed content of one platform, in bytes.
	Size int64
	// ChainID is the name of the snapshot of its root file system.
	ChainID string
	Config  ocispec.ImageConfig
	Pinned  bool
}

// Ref returns the name of the image with a digest, or its ID if it has none.
func (i *Image) Ref() string {
	if len(i.Digests) > 0 {
		return i.Digests[0]
	}
	return i.ID.String()
}

// labelPinned marks an image that is not removed (containerd's internal/cri/labels).
const labelPinned = "io.cri-containerd.pinned"

// contents are the images by their targets. They do not change.
type contents struct {
	mu       sync.Mutex
	byTarget map[digest.Digest]*Image // without names
}

// Images returns all images whose content is present, sorted by ID.
func (s *Store) Images(ctx context.Context) ([]Image, error) {
	all, err := call(ctx, func(ctx context.Context) ([]images.Image, error) { return s.client.ImageService().List(ctx) }, "list images")
	if err != nil {
		return nil, err
	}
	byID := map[digest.Digest]*Image{}
	present := map[digest.Digest]bool{}
	for i := range all {
		present[all[i].Target.Digest] = true
		read, err := s.content(ctx, all[i].Target)
		if errors.Is(err, containerd.ErrDocument) || errdefs.IsNotFound(err) {
			continue // another platform's, or incomplete
		}
		if err != nil {
			return nil, err
		}
		image := byID[read.ID]
		if image == nil {
			made := *read
			image = &made
			byID[read.ID] = image
		}
		image.name(&all[i])
	}
	s.contents.keep(present)
	out := make([]Image, 0, len(byID))
	for _, image := range byID {
		slices.Sort(image.Tags)
		slices.Sort(image.Digests)
		out = append(out, *image)
	}
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, nil
}

// Image returns the image of a name, of an ID, or of an ID without its algorithm. It returns
// nil if there is none. A name without a domain is Docker Hub's, and its default tag is latest.
func (s *Store) Image(ctx context.Context, ref string) (*Image, error) {
	all, err := s.Images(ctx)
	if err != nil {
		return nil, err
	}
	is := ImageIs(ref)
	for i := range all {
		if image := &all[i]; is(image) {
			return image, nil
		}
	}
	return nil, nil
}

// ImageIs returns a function that reports whether an image is that of a reference, in the
// forms that Image takes.
func ImageIs(ref string) func(*Image) bool {
	name := ref
	// An ID may have the form of a name: it is compared too.
	if named, err := reference.ParseDockerRef(ref); err == nil {
		name = named.String()
	}
	return func(i *Image) bool {
		return string(i.ID) == ref || i.ID.Encoded() == ref || slices.Contains(i.Tags, name) || slices.Contains(i.Digests, name)
	}
}

// RemoveImage removes an image with all its names, and returns when containerd has collected
// what only it has used.
func (s *Store) RemoveImage(ctx context.Context, image *Image) error {
	names := slices.Concat(image.Tags, image.Digests, []string{image.ID.String()})
	for i, name := range names {
		var options []images.DeleteOpt
		if i == len(names)-1 {
			options = append(options, images.SynchronousDelete())
		}
		_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
			err := s.client.ImageService().Delete(ctx, name, options...)
			if errdefs.IsNotFound(err) {
				err = nil
			}
			return struct{}{}, err
		}, "remove image %q", name)
		if err != nil {
			return err
		}
	}
	return nil
}

// name adds a name to an image.
func (i *Image) name(from *images.Image) {
	i.Pinned = i.Pinned || from.Labels[labelPinned] == "pinned"
	switch {
	case strings.Contains(from.Name, "@"):
		i.Digests = append(i.Digests, from.Name)
	case strings.HasPrefix(from.Name, string(i.ID.Algorithm())+":"):
	default:
		i.Tags = append(i.Tags, from.Name)
	}
}

// content reads the content of an image for the platform.
func (s *Store) content(ctx context.Context, target ocispec.Descriptor) (*Image, error) {
	if image := s.contents.get(target.Digest); image != nil {
		return image, nil
	}
	image, err := call(ctx, func(ctx context.Context) (*Image, error) { return s.readContent(ctx, target) }, "read image %s", target.Digest)
	if err != nil {
		return nil, err
	}
	s.contents.put(target.Digest, image)
	return image, nil
}

func (s *Store) readContent(ctx context.Context, target ocispec.Descriptor) (*Image, error) {
	from := containerd.Documents{Provider: s.client.ContentStore()}
	manifest, err := images.Manifest(ctx, from, target, s.platform)
	if err != nil {
		return nil, err
	}
	data, err := content.ReadBlob(ctx, from, manifest.Config)
	if err != nil {
		return nil, err
	}
	var config ocispec.Image
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%w: configuration: %w", containerd.ErrDocument, err)
	}
	if len(config.RootFS.DiffIDs) != len(manifest.Layers) || len(manifest.Layers) == 0 {
		return nil, fmt.Errorf("%w: %d layers and %d diff IDs", containerd.ErrDocument, len(manifest.Layers), len(config.RootFS.DiffIDs))
	}
	size := target.Size + manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return &Image{ID: manifest.Config.Digest, Target: target, Size: size, ChainID: identity.ChainID(config.RootFS.DiffIDs).String(), Config: config.Config}, nil
}

func (c *contents) get(target digest.Digest) *Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byTarget[target]
}

func (c *contents) put(target digest.Digest, image *Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTarget == nil {
		c.byTarget = map[digest.Digest]*Image{}
	}
	c.byTarget[target] = image
}

// keep forgets the content of images that are gone.
func (c *contents) keep(present map[digest.Digest]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for target := range c.byTarget {
		if !present[target] {
			delete(c.byTarget, target)
		}
	}
}
