package preload

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/container"
)

// Media types (OCI image spec, and Docker's image manifest version 2).
const (
	typeIndex      = "application/vnd.oci.image.index.v1+json"
	typeManifest   = "application/vnd.oci.image.manifest.v1+json"
	typeConfig     = "application/vnd.oci.image.config.v1+json"
	typeLayer      = "application/vnd.oci.image.layer.v1.tar"
	typeDockerList = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Annotations that name an image in an index. containerd's has the full name;
// the one of the OCI spec may have only a tag.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// Limits of an image.
const (
	maxImages = 256
	maxLayers = 512
	maxDepth  = 3 // of nested indexes
)

// plan lists the images and blobs to import from an archive.
type plan struct {
	images []plannedImage
	blobs  []*source // without duplicates
	bytes  int64     // of all blobs
}

// plannedImage is one image of a plan.
type plannedImage struct {
	names  []string // full names with a tag
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

func (p *plan) add(s *source) {
	for _, other := range p.blobs {
		if other.Digest == s.Digest {
			return
		}
	}
	p.blobs = append(p.blobs, s)
	p.bytes += s.Size
}

// names returns the digests of the images, keyed by all their names: with the
// tag and with the digest.
func (p *plan) names() map[string]string {
	out := make(map[string]string)
	for _, img := range p.images {
		for _, name := range img.names {
			out[name] = img.target.Digest
			out[withDigest(name, img.target.Digest)] = img.target.Digest
		}
	}
	return out
}

// withDigest returns a full name with its tag, if any, replaced by a digest.
func withDigest(name, digest string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name + "@" + digest
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// document is an index or a manifest, depending on which fields are set.
type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
	Config        descriptor   `json:"config,omitzero"`
	Layers        []descriptor `json:"layers,omitempty"`
}

// planner makes a plan from the index and manifests in an archive.
type planner struct {
	archive  *archive
	host     Platform
	fullName func(string) (string, error)
	plan     plan
}

// read returns the plan. Its errors are errBad, a read error of the disk, or
// the error of ctx.
func (p *planner) read(ctx context.Context) (*plan, error) {
	if err := p.archive.scan(ctx); err != nil {
		return nil, err
	}
	var err error
	index, manifest := p.archive.find("index.json"), p.archive.find("manifest.json")
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
	data, err := p.archive.readJSON(ctx, "index.json")
	if err != nil {
		return err
	}
	var index document
	if err := json.Unmarshal(data, &index); err != nil {
		return invalidf("parse index.json: %w", err)
	}
	byName := make(map[string][]descriptor)
	var names []string
	for _, d := range index.Manifests {
		name := p.nameOf(d)
		if name == "" {
			continue
		}
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], d)
	}
	if len(names) > maxImages {
		return invalidf("more than %d images", maxImages)
	}
	for _, name := range names {
		list := byName[name]
		var target container.Blob
		if len(list) == 1 {
			target, err = p.resolve(ctx, list[0], 0)
		} else {
			target, _, err = p.choose(ctx, list, 0)
		}
		if err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}
		p.plan.images = append(p.plan.images, plannedImage{names: []string{name}, target: target})
	}
	return nil
}

// nameOf returns the full name of an image, or "" if it has none.
func (p *planner) nameOf(d descriptor) string {
	name := d.Annotations[annotationName]
	if name == "" {
		if name = d.Annotations[annotationRef]; !strings.ContainsAny(name, "/:") {
			return ""
		}
	}
	full, err := p.fullName(name)
	if err != nil || strings.Contains(full, "@") {
		return ""
	}
	return full
}

// resolve adds the index or manifest of a descriptor and everything that it
// refers to, and returns the resulting blob.
func (p *planner) resolve(ctx context.Context, d descriptor, depth int) (container.Blob, error) {
	data, err := p.blob(ctx, d)
	if err != nil {
		return container.Blob{}, err
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return container.Blob{}, invalidf("parse content %s: %w", d.Digest, err)
	}
	if d.MediaType == typeIndex || d.MediaType == typeDockerList || d.MediaType == "" && len(doc.Manifests) > 0 {
		return p.index(ctx, d, &doc, data, depth)
	}
	return p.manifest(ctx, d, &doc, data)
}

// index adds the best manifest of an index. If that is the manifest that
// containerd would choose, the image's target is the index itself, so that its
// digest equals the registry's.
func (p *planner) index(ctx context.Context, d descriptor, doc *document, data []byte, depth int) (container.Blob, error) {
	if depth == maxDepth {
		return container.Blob{}, invalidf("index %s: too many nested indexes", d.Digest)
	}
	chosen, best, err := p.choose(ctx, doc.Manifests, depth+1)
	if err != nil || !best {
		return chosen, err
	}
	b := container.Blob{
		MediaType: cmp.Or(d.MediaType, doc.MediaType, typeIndex), Digest: d.Digest, Size: d.Size,
		Refs: map[string]string{"m.0": chosen.Digest},
	}
	p.plan.add(&source{Blob: b, data: data})
	return b, nil
}

// choose resolves the descriptor that fits the host best among those whose
// content is in the archive. best is true if no descriptor in list, present or
// not, fits better.
func (p *planner) choose(ctx context.Context, list []descriptor, depth int) (b container.Blob, best bool, err error) {
	type choice struct {
		descriptor
		rank int
	}
	var fit []choice
	var others []string
	for _, d := range list {
		c := choice{descriptor: d, rank: len(p.host.runnable())} // last, if it has no platform
		if d.Platform != nil {
			if c.rank = p.host.rank(*d.Platform); c.rank < 0 {
				others = append(others, d.Platform.String())
				continue
			}
		}
		fit = append(fit, c)
	}
	if len(fit) == 0 {
		return b, false, invalidf("image platform %s does not match node platform %s", strings.Join(others, ", "), p.host)
	}
	slices.SortStableFunc(fit, func(a, b choice) int { return cmp.Compare(a.rank, b.rank) })
	for i, c := range fit {
		if p.archive.find(blobPath(c.Digest)) == nil && i < len(fit)-1 {
			continue // saved without this platform
		}
		b, err := p.resolve(ctx, c.descriptor, depth)
		return b, i == 0, err
	}
	return b, false, nil // not reached: the last one is never skipped
}

// manifest adds a manifest, its config and its layers.
func (p *planner) manifest(ctx context.Context, d descriptor, doc *document, data []byte) (container.Blob, error) {
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
	refs := map[string]string{"config": doc.Config.Digest}
	p.plan.add(&source{Blob: container.Blob{MediaType: doc.Config.MediaType, Digest: doc.Config.Digest, Size: doc.Config.Size}, data: config})
	for i, l := range doc.Layers {
		e, err := p.entry(l)
		if err != nil {
			return container.Blob{}, err
		}
		refs[fmt.Sprintf("l.%d", i)] = l.Digest
		p.plan.add(&source{Blob: container.Blob{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}, serial: e.serial, offset: e.offset})
	}
	b := container.Blob{MediaType: cmp.Or(d.MediaType, doc.MediaType, typeManifest), Digest: d.Digest, Size: d.Size, Refs: refs}
	p.plan.add(&source{Blob: b, data: data})
	return b, nil
}

// checkConfig checks that an image config is for a platform that the host can
// run, and returns the digests of the uncompressed layers.
func (p *planner) checkConfig(data []byte) (diffs []string, err error) {
	var config struct {
		Platform
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, invalidf("parse image config: %w", err)
	}
	if config.Architecture == "" || len(config.RootFS.DiffIDs) == 0 {
		return nil, invalidf("not the config of a container image")
	}
	if p.host.rank(config.Platform) < 0 {
		return nil, invalidf("image platform %s does not match node platform %s", config.Platform.normal(), p.host)
	}
	for _, d := range config.RootFS.DiffIDs {
		if !validDigest(d) {
			return nil, invalidf("invalid digest %q", d)
		}
	}
	return config.RootFS.DiffIDs, nil
}

func blobPath(digest string) string { return path.Join("blobs", strings.Replace(digest, ":", "/", 1)) }

// entry returns the archive entry of a descriptor's blob.
func (p *planner) entry(d descriptor) (*entry, error) {
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

// blob returns the JSON of a descriptor after checking it against the digest.
func (p *planner) blob(ctx context.Context, d descriptor) ([]byte, error) {
	if _, err := p.entry(d); err != nil {
		return nil, err
	}
	data, err := p.archive.readJSON(ctx, blobPath(d.Digest))
	if err != nil {
		return nil, err
	}
	if digestOf(data) != d.Digest {
		return nil, invalidf("content %s does not match its digest", d.Digest)
	}
	return data, nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func validDigest(s string) bool {
	sum, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}
