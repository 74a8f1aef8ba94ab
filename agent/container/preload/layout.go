package preload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Limits of images.
const (
	maxImages    = 256 // and names of images
	maxLayers    = 512
	maxAllLayers = 32 << 10 // of all images of an archive
	maxDepth     = 3        // of nested indexes
)

// plan lists the images and blobs to import from an archive.
type plan struct {
	images []plannedImage
	blobs  []*source // without duplicates
	bytes  int64     // of all blobs
}

type plannedImage struct {
	names  []reference.NamedTagged // normalized
	target container.Blob
}

// source is a blob and the source of its content: an entry of the archive, or
// data if that is not nil.
type source struct {
	container.Blob
	serial int
	offset int64
	data   []byte
}

// blobOf returns the blob of a descriptor, without the descriptor's other fields.
func blobOf(d ocispec.Descriptor, refs map[string]digest.Digest) container.Blob {
	return container.Blob{Descriptor: ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, Refs: refs}
}

// add adds a blob to the plan, unless it is there.
func (p *planner) add(s *source) error {
	if p.added[s.Digest] {
		return nil
	}
	if s.data == nil {
		if other, ok := p.digests[s.serial]; ok {
			return invalidf("one entry has the digests %s and %s", other, s.Digest)
		}
		p.digests[s.serial] = s.Digest
	}
	p.added[s.Digest] = true
	p.plan.blobs = append(p.plan.blobs, s)
	p.plan.bytes += s.Size
	return nil
}

// addImage adds the manifest of d, whose content is data, with its config and its
// layers in the archive, and returns the blob of the manifest.
func (p *planner) addImage(d ocispec.Descriptor, data []byte, m *ocispec.Manifest, config []byte, layers []*entry) (container.Blob, error) {
	if p.layers += len(layers); p.layers > maxAllLayers {
		return container.Blob{}, invalidf("images have more than %d layers", maxAllLayers)
	}
	b := blobOf(d, map[string]digest.Digest{"config": m.Config.Digest})
	err := p.add(&source{Blob: blobOf(m.Config, nil), data: config})
	for i, l := range m.Layers {
		b.Refs[fmt.Sprintf("l.%d", i)] = l.Digest
		err = cmp.Or(err, p.add(&source{Blob: blobOf(l, nil), serial: layers[i].serial, offset: layers[i].offset}))
	}
	return b, cmp.Or(err, p.add(&source{Blob: b, data: data}))
}

// names returns the digests of the images, keyed by all their names: with the
// tag and with the digest.
func (p *plan) names() map[string]digest.Digest {
	out := make(map[string]digest.Digest)
	for _, img := range p.images {
		for _, name := range img.names {
			out[name.String()] = img.target.Digest
			out[withDigest(name, img.target.Digest)] = img.target.Digest
		}
	}
	return out
}

// withDigest returns a name with its tag replaced by a digest.
func withDigest(name reference.Named, d digest.Digest) string {
	return reference.TrimNamed(name).String() + "@" + d.String()
}

// planner makes a plan from the index and manifests in an archive.
type planner struct {
	archive *archive
	host    ocispec.Platform
	runs    platforms.MatchComparer // the platforms that the host runs, its own first
	plan    plan

	added   map[digest.Digest]bool // the plan's blobs
	digests map[int]digest.Digest  // of the plan's blobs that are entries, by serial
	layers  int                    // of all images, with duplicates
}

// read returns the plan. Its errors wrap errInvalidArchive or a read error of the disk, or
// are the error of ctx.
func (p *planner) read(ctx context.Context) (*plan, error) {
	if err := p.archive.scan(ctx); err != nil {
		return nil, err
	}
	p.added, p.digests = make(map[digest.Digest]bool), make(map[int]digest.Digest)
	var err error
	index, manifest := p.archive.find(ocispec.ImageIndexFile), p.archive.find("manifest.json")
	if index != nil {
		err = p.oci(ctx)
	}
	// Older tools wrote an index without names in addition to Docker's
	// manifest.
	if err == nil && len(p.plan.images) == 0 && manifest != nil {
		err = p.docker(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case index == nil && manifest == nil:
		return nil, invalidf("neither index.json nor manifest.json found")
	case len(p.plan.images) == 0:
		return nil, invalidf("images have no names: save them with a tag")
	}
	return &p.plan, nil
}

// oci plans an archive in the format of an OCI image layout.
func (p *planner) oci(ctx context.Context) error {
	data, err := p.archive.readJSON(ctx, ocispec.ImageIndexFile)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return invalidf("parse index.json: %w", err)
	}
	byName := make(map[string][]ocispec.Descriptor)
	var names []reference.NamedTagged
	for _, d := range index.Manifests {
		name := nameOf(d)
		if name == nil {
			continue
		}
		if byName[name.String()] == nil {
			names = append(names, name)
		}
		byName[name.String()] = append(byName[name.String()], d)
	}
	if len(names) > maxImages {
		return invalidf("more than %d images", maxImages)
	}
	for _, name := range names {
		list := byName[name.String()]
		var target container.Blob
		if len(list) == 1 {
			target, err = p.resolve(ctx, list[0], 0)
		} else {
			target, _, err = p.choose(ctx, list, 0)
		}
		if err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}
		p.plan.images = append(p.plan.images, plannedImage{names: []reference.NamedTagged{name}, target: target})
	}
	return nil
}

// nameOf returns the name of an image, or nil if it has none or an invalid one.
// containerd's annotation has the full name. The annotation of the OCI spec may have only
// a tag, which is not a name.
func nameOf(d ocispec.Descriptor) reference.NamedTagged {
	name := d.Annotations[images.AnnotationImageName]
	if name == "" {
		if name = d.Annotations[ocispec.AnnotationRefName]; !strings.ContainsAny(name, "/:") {
			return nil
		}
	}
	return parseTag(name)
}

// parseTag normalizes a name with a tag, latest if there is none. It returns
// nil if the name is invalid or has a digest.
func parseTag(name string) reference.NamedTagged {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil
	}
	if _, digested := named.(reference.Digested); digested {
		return nil
	}
	tagged, _ := reference.TagNameOnly(named).(reference.NamedTagged)
	return tagged
}

// resolve adds the index or manifest of a descriptor and everything that it
// refers to, and returns the resulting blob.
func (p *planner) resolve(ctx context.Context, d ocispec.Descriptor, depth int) (container.Blob, error) {
	data, err := p.blob(ctx, d)
	if err != nil {
		return container.Blob{}, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return container.Blob{}, invalidf("parse content %s: %w", d.Digest, err)
	}
	if images.IsIndexType(d.MediaType) || d.MediaType == "" && len(index.Manifests) > 0 {
		return p.index(ctx, d, &index, data, depth)
	}
	return p.manifest(ctx, d, data)
}

// index adds the best manifest of an index. If that is the manifest that
// containerd would choose, the image's target is the index itself, so that its
// digest equals the registry's.
func (p *planner) index(ctx context.Context, d ocispec.Descriptor, index *ocispec.Index, data []byte, depth int) (container.Blob, error) {
	if depth == maxDepth {
		return container.Blob{}, invalidf("index %s: too many nested indexes", d.Digest)
	}
	chosen, best, err := p.choose(ctx, index.Manifests, depth+1)
	if err != nil || !best {
		return chosen, err
	}
	d.MediaType = cmp.Or(d.MediaType, index.MediaType, ocispec.MediaTypeImageIndex)
	b := blobOf(d, map[string]digest.Digest{"m.0": chosen.Digest})
	return b, p.add(&source{Blob: b, data: data})
}

// choose resolves the descriptor that fits the host best among those whose content is in
// the archive. best reports whether no descriptor in list, present or not, fits better.
func (p *planner) choose(ctx context.Context, list []ocispec.Descriptor, depth int) (b container.Blob, best bool, err error) {
	if len(list) == 0 {
		return b, false, invalidf("index has no manifests")
	}
	var fit []ocispec.Descriptor
	var others []string
	for _, d := range list {
		if d.Platform == nil || p.runs.Match(*d.Platform) {
			fit = append(fit, d)
		} else {
			others = append(others, platforms.Format(*d.Platform))
		}
	}
	if len(fit) == 0 {
		return b, false, p.mismatch(strings.Join(others, ", "))
	}
	slices.SortStableFunc(fit, func(a, b ocispec.Descriptor) int {
		switch {
		case p.fitsBetter(a.Platform, b.Platform):
			return -1
		case p.fitsBetter(b.Platform, a.Platform):
			return 1
		}
		return 0
	})
	for i, d := range fit {
		if p.archive.find(blobPath(d.Digest)) == nil && i < len(fit)-1 {
			continue // saved without this platform
		}
		b, err := p.resolve(ctx, d, depth)
		return b, i == 0, err
	}
	return b, false, nil // not reached: the last one is never skipped
}

// fitsBetter reports whether an image of platform a fits the host better than
// one of b. An image without a platform (nil) fits least.
func (p *planner) fitsBetter(a, b *ocispec.Platform) bool {
	return a != nil && (b == nil || p.runs.Less(*a, *b))
}

// mismatch is the error of an image for platforms that the host cannot run.
func (p *planner) mismatch(found string) error {
	return invalidf("image platform %s does not match node platform %s", found, platforms.Format(platforms.Normalize(p.host)))
}

// manifest adds a manifest, its config and its layers.
func (p *planner) manifest(ctx context.Context, d ocispec.Descriptor, data []byte) (container.Blob, error) {
	var doc ocispec.Manifest
	if err := json.Unmarshal(data, &doc); err != nil {
		return container.Blob{}, invalidf("parse content %s: %w", d.Digest, err)
	}
	config, err := p.blob(ctx, doc.Config)
	if err != nil {
		return container.Blob{}, err
	}
	diffs, err := p.checkConfig(config)
	if err != nil {
		return container.Blob{}, err
	}
	if len(doc.Layers) > maxLayers || len(doc.Layers) != len(diffs) {
		return container.Blob{}, invalidf("manifest %s has %d layers, its config %d", d.Digest, len(doc.Layers), len(diffs))
	}
	layers := make([]*entry, len(doc.Layers))
	for i, l := range doc.Layers {
		if layers[i], err = p.entry(l); err != nil {
			return container.Blob{}, err
		}
	}
	d.MediaType = cmp.Or(d.MediaType, doc.MediaType, ocispec.MediaTypeImageManifest)
	return p.addImage(d, data, &doc, config, layers)
}

// checkConfig checks that an image config is for a platform that the host can
// run, and returns the digests of the uncompressed layers.
func (p *planner) checkConfig(data []byte) (diffs []digest.Digest, err error) {
	var config struct {
		ocispec.Platform
		RootFS ocispec.RootFS `json:"rootfs"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, invalidf("parse image config: %w", err)
	}
	if config.Architecture == "" || len(config.RootFS.DiffIDs) == 0 {
		return nil, invalidf("not the config of a container image")
	}
	if !p.runs.Match(config.Platform) {
		return nil, p.mismatch(platforms.Format(platforms.Normalize(config.Platform)))
	}
	for _, d := range config.RootFS.DiffIDs {
		if !validDigest(d) {
			return nil, invalidf("invalid digest %q", d)
		}
	}
	return config.RootFS.DiffIDs, nil
}

func blobPath(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, strings.Replace(d.String(), ":", "/", 1))
}

// entry returns the archive entry of a descriptor's blob.
func (p *planner) entry(d ocispec.Descriptor) (*entry, error) {
	if !validDigest(d.Digest) {
		return nil, invalidf("invalid digest %q", d.Digest)
	}
	e := p.archive.find(blobPath(d.Digest))
	switch {
	case e == nil:
		return nil, invalidf("content %s is missing", d.Digest)
	case e.size != d.Size:
		return nil, invalidf("content %s has %d bytes, not %d", d.Digest, e.size, d.Size)
	}
	return e, nil
}

// blob returns the JSON of a descriptor. It checks the size and the digest.
func (p *planner) blob(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if _, err := p.entry(d); err != nil {
		return nil, err
	}
	data, err := p.archive.readJSON(ctx, blobPath(d.Digest))
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != d.Digest {
		return nil, invalidf("content %s does not match its digest", d.Digest)
	}
	return data, nil
}

// validDigest reports whether d is a SHA-256 digest. containerd's store has no
// others.
func validDigest(d digest.Digest) bool { return d.Validate() == nil && d.Algorithm() == digest.SHA256 }
