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

// Annotations that name an image in an index: containerd's has the name in
// full, the spec's may be only a tag.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// Limits of an image.
const (
	maxImages = 256
	maxLayers = 512
	maxDepth  = 3 // of an index in an index
)

// plan is what an archive is to become.
type plan struct {
	images []planned
	blobs  []*source // each once
	bytes  int64     // of all blobs
}

// planned is one image.
type planned struct {
	names  []string // in full, with a tag
	target container.Blob
}

// source is a blob and where it comes from: an entry of the archive, or
// data, which is there already.
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

// names are all names that the images of an archive have.
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

// withDigest is a name in full with a digest in the tag's place.
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

// document is an index or a manifest: which one, its fields tell.
type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
	Config        descriptor   `json:"config,omitzero"`
	Layers        []descriptor `json:"layers,omitempty"`
}

// planner reads an archive's own account of itself.
type planner struct {
	archive  *archive
	host     Platform
	fullName func(string) (string, error)
	plan     plan
}

// read makes the plan. Its errors are errBad, or of the disk, or ctx's end.
func (p *planner) read(ctx context.Context) (*plan, error) {
	if err := p.archive.scan(ctx); err != nil {
		return nil, err
	}
	var err error
	index, manifest := p.archive.find("index.json"), p.archive.find("manifest.json")
	if index != nil {
		err = p.oci(ctx)
	}
	// Older tools wrote an index without names beside Docker's manifest.
	if err == nil && len(p.plan.images) == 0 && manifest != nil {
		err = p.docker(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case index == nil && manifest == nil:
		return nil, bad("it has neither index.json nor manifest.json")
	case len(p.plan.images) == 0:
		return nil, bad("its images have no names: give them a tag when saving")
	}
	return &p.plan, nil
}

// oci reads an OCI image layout.
func (p *planner) oci(ctx context.Context) error {
	data, err := p.archive.readJSON(ctx, "index.json")
	if err != nil {
		return err
	}
	var index document
	if err := json.Unmarshal(data, &index); err != nil {
		return bad("index.json: %w", err)
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
		return bad("it has more than %d images", maxImages)
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
		p.plan.images = append(p.plan.images, planned{names: []string{name}, target: target})
	}
	return nil
}

// nameOf is an image's name in full, or "" for what has none.
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

// resolve adds what a descriptor leads to, and answers its blob.
func (p *planner) resolve(ctx context.Context, d descriptor, depth int) (container.Blob, error) {
	data, err := p.blob(ctx, d)
	if err != nil {
		return container.Blob{}, err
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return container.Blob{}, bad("%s: %w", d.Digest, err)
	}
	if d.MediaType == typeIndex || d.MediaType == typeDockerList || d.MediaType == "" && len(doc.Manifests) > 0 {
		return p.index(ctx, d, &doc, data, depth)
	}
	return p.manifest(ctx, d, &doc, data)
}

// index adds the best manifest of an index. The index itself becomes the
// image, so that its digest is the registry's, if containerd would choose the
// same manifest.
func (p *planner) index(ctx context.Context, d descriptor, doc *document, data []byte, depth int) (container.Blob, error) {
	if depth == maxDepth {
		return container.Blob{}, bad("%s is an index in too many others", d.Digest)
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

// choose takes the best of several that the archive has. best says that none
// would have been better.
func (p *planner) choose(ctx context.Context, list []descriptor, depth int) (b container.Blob, best bool, err error) {
	type choice struct {
		descriptor
		rank int
	}
	var fit []choice
	var others []string
	for _, d := range list {
		c := choice{descriptor: d, rank: len(p.host.runnable())} // the last, if it does not say
		if d.Platform != nil {
			if c.rank = p.host.rank(*d.Platform); c.rank < 0 {
				others = append(others, d.Platform.String())
				continue
			}
		}
		fit = append(fit, c)
	}
	if len(fit) == 0 {
		return b, false, bad("it is for %s, and this board is %s", strings.Join(others, ", "), p.host)
	}
	slices.SortStableFunc(fit, func(a, b choice) int { return cmp.Compare(a.rank, b.rank) })
	for i, c := range fit {
		if p.archive.find(blobPath(c.Digest)) == nil && i < len(fit)-1 {
			continue // saved for another platform
		}
		b, err := p.resolve(ctx, c.descriptor, depth)
		return b, i == 0, err
	}
	return b, false, nil // not reached: the last one is not left out
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
		return container.Blob{}, bad("manifest %s has %d layers, its config %d", d.Digest, len(doc.Layers), len(diffs))
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

// checkConfig wants a config for this platform and answers the digests of
// its unpacked layers.
func (p *planner) checkConfig(data []byte) (diffs []string, err error) {
	var config struct {
		Platform
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, bad("config of the image: %w", err)
	}
	if config.Architecture == "" || len(config.RootFS.DiffIDs) == 0 {
		return nil, bad("the config is not of a container image")
	}
	if p.host.rank(config.Platform) < 0 {
		return nil, bad("it is for %s, and this board is %s", config.Platform.normal(), p.host)
	}
	for _, d := range config.RootFS.DiffIDs {
		if !validDigest(d) {
			return nil, bad("%q is no digest", d)
		}
	}
	return config.RootFS.DiffIDs, nil
}

func blobPath(digest string) string { return path.Join("blobs", strings.Replace(digest, ":", "/", 1)) }

// entry finds a descriptor's blob in the archive.
func (p *planner) entry(d descriptor) (*entry, error) {
	if !validDigest(d.Digest) {
		return nil, bad("%q is no digest", d.Digest)
	}
	e := p.archive.find(blobPath(d.Digest))
	switch {
	case e == nil:
		return nil, bad("content %s is missing", d.Digest)
	case e.size != d.Size:
		return nil, bad("content %s has %d bytes, not %d", d.Digest, e.size, d.Size)
	}
	return e, nil
}

// blob reads a descriptor's JSON and checks that it is what the digest says.
func (p *planner) blob(ctx context.Context, d descriptor) ([]byte, error) {
	if _, err := p.entry(d); err != nil {
		return nil, err
	}
	data, err := p.archive.readJSON(ctx, blobPath(d.Digest))
	if err != nil {
		return nil, err
	}
	if digestOf(data) != d.Digest {
		return nil, bad("content %s does not match its digest", d.Digest)
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
