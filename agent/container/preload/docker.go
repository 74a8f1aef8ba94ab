package preload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// dockerImage is an entry of the manifest.json that docker save writes.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// docker plans an archive in the format of docker save. The format has no image manifest
// such as registries serve, so docker generates one. It skips images without a valid name.
func (p *planner) docker(ctx context.Context) error {
	data, err := p.archive.readJSON(ctx, "manifest.json")
	if err != nil {
		return err
	}
	var list []dockerImage
	if err := json.Unmarshal(data, &list); err != nil {
		return invalidf("parse manifest.json: %w", err)
	}
	if len(list) > maxImages {
		return invalidf("more than %d images", maxImages)
	}
	tags := 0
	for _, img := range list {
		if tags += len(img.RepoTags); tags > maxImages {
			return invalidf("images have more than %d names", maxImages)
		}
	}
	sums, err := p.sums(ctx, list)
	if err != nil {
		return err
	}
	for _, img := range list {
		var names []reference.NamedTagged
		for _, tag := range img.RepoTags {
			if name := parseTag(tag); name != nil {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		target, err := p.dockerImage(ctx, img, sums)
		if err != nil {
			return fmt.Errorf("image %q: %w", names[0], err)
		}
		p.plan.images = append(p.plan.images, plannedImage{names: names, target: target})
	}
	return nil
}

// dockerImage plans one image and its generated manifest, and returns the
// blob of the manifest. sums are the digests of the compressed layers by
// serial.
func (p *planner) dockerImage(ctx context.Context, img dockerImage, sums map[int]digest.Digest) (container.Blob, error) {
	config, err := p.archive.readJSON(ctx, img.Config)
	if err != nil {
		return container.Blob{}, err
	}
	diffs, err := p.checkConfig(config)
	if err != nil {
		return container.Blob{}, err
	}
	if len(img.Layers) > maxLayers || len(diffs) != len(img.Layers) {
		return container.Blob{}, invalidf("image has %d layers, its config %d", len(img.Layers), len(diffs))
	}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: describe(ocispec.MediaTypeImageConfig, config)}
	var layers []*entry
	for i, name := range img.Layers {
		e := p.archive.find(name)
		if e == nil {
			return container.Blob{}, invalidf("layer %q is missing", name)
		}
		// The config has the digests of the uncompressed layers.
		l := ocispec.Descriptor{MediaType: layerType(e), Digest: cmp.Or(sums[e.serial], diffs[i]), Size: e.size}
		manifest.Layers, layers = append(manifest.Layers, l), append(layers, e)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return container.Blob{}, fmt.Errorf("encode image manifest: %w", err)
	}
	return p.addImage(describe(ocispec.MediaTypeImageManifest, data), data, &manifest, config, layers)
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// layerType returns the media type of a layer, by its compression.
func layerType(e *entry) string {
	switch compression.DetectCompression(e.head[:]) {
	case compression.Gzip:
		return ocispec.MediaTypeImageLayerGzip
	case compression.Zstd:
		return ocispec.MediaTypeImageLayerZstd
	case compression.Uncompressed, compression.Unknown:
	}
	return ocispec.MediaTypeImageLayer
}

// sums returns the digests of the compressed layers by serial. Newer archives have them in
// the names of the layers. For others, sums computes them in one pass over the archive.
func (p *planner) sums(ctx context.Context, list []dockerImage) (map[int]digest.Digest, error) {
	sums, unknown := make(map[int]digest.Digest), make(map[int]bool)
	for _, img := range list {
		for _, name := range img.Layers {
			e := p.archive.find(name)
			if e == nil || layerType(e) == ocispec.MediaTypeImageLayer {
				continue
			}
			named := digest.NewDigestFromEncoded(digest.SHA256, path.Base(e.name))
			if path.Dir(e.name) == "blobs/sha256" && validDigest(named) {
				sums[e.serial] = named
			} else {
				unknown[e.serial] = true
			}
		}
	}
	err := p.archive.each(ctx, unknown, func(e *entry, r io.Reader) error {
		sum, err := digest.SHA256.FromReader(r)
		if err != nil {
			return p.archive.readError(ctx, err)
		}
		sums[e.serial] = sum
		return nil
	})
	return sums, err
}
