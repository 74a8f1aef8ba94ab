package preload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/tinylet/tinylet/agent/container"
)

// dockerImage is an entry of the manifest.json that docker save writes.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// docker plans an archive in the format of docker save. The format has no
// image manifest such as registries serve, so one is generated.
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
	sums, err := p.sums(ctx, list)
	if err != nil {
		return err
	}
	for _, img := range list {
		var names []string
		for _, tag := range img.RepoTags {
			if full, err := p.fullName(tag); err == nil && !strings.Contains(full, "@") {
				names = append(names, full)
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
func (p *planner) dockerImage(ctx context.Context, img dockerImage, sums map[int]string) (container.Blob, error) {
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
	doc := document{SchemaVersion: 2, MediaType: typeManifest, Config: descriptor{MediaType: typeConfig, Digest: digestOf(config), Size: int64(len(config))}}
	refs := map[string]string{"config": doc.Config.Digest}
	p.plan.add(&source{Blob: container.Blob{MediaType: typeConfig, Digest: doc.Config.Digest, Size: doc.Config.Size}, data: config})
	for i, name := range img.Layers {
		e := p.archive.find(name)
		if e == nil {
			return container.Blob{}, invalidf("layer %q is missing", name)
		}
		// The config has the digests of the uncompressed layers.
		l := descriptor{MediaType: layerType(e), Digest: cmp.Or(sums[e.serial], diffs[i]), Size: e.size}
		doc.Layers = append(doc.Layers, l)
		refs[fmt.Sprintf("l.%d", i)] = l.Digest
		p.plan.add(&source{Blob: container.Blob{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}, serial: e.serial, offset: e.offset})
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return container.Blob{}, fmt.Errorf("encode image manifest: %w", err)
	}
	b := container.Blob{MediaType: typeManifest, Digest: digestOf(data), Size: int64(len(data)), Refs: refs}
	p.plan.add(&source{Blob: b, data: data})
	return b, nil
}

// layerType returns the media type of a layer, by its compression.
func layerType(e *entry) string {
	switch {
	case bytes.HasPrefix(e.head[:], gzipMagic):
		return typeLayer + "+gzip"
	case bytes.Equal(e.head[:], zstdMagic):
		return typeLayer + "+zstd"
	}
	return typeLayer
}

// sums returns the digests of the compressed layers by serial. Newer archives
// have them in the names of the layers. In others they are computed.
func (p *planner) sums(ctx context.Context, list []dockerImage) (map[int]string, error) {
	sums, unknown := make(map[int]string), make(map[int]bool)
	for _, img := range list {
		for _, name := range img.Layers {
			e := p.archive.find(name)
			if e == nil || layerType(e) == typeLayer {
				continue
			}
			digest := "sha256:" + path.Base(e.name)
			if path.Dir(e.name) == "blobs/sha256" && validDigest(digest) {
				sums[e.serial] = digest
			} else {
				unknown[e.serial] = true
			}
		}
	}
	err := p.archive.each(ctx, unknown, func(e *entry, r io.Reader) error {
		h := sha256.New()
		if _, err := io.Copy(h, r); err != nil {
			return p.archive.readError(ctx, err)
		}
		sums[e.serial] = "sha256:" + hex.EncodeToString(h.Sum(nil))
		return nil
	})
	return sums, err
}
