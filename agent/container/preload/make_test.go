package preload

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// item is an entry of an archive under test.
type item struct {
	name string
	data []byte
	link string
}

func pack(t testing.TB, items []item) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Size: int64(len(i.data)), Mode: 0o644, Typeflag: tar.TypeReg}
		if strings.HasSuffix(i.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if i.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, i.link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(i.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// made is an image under test.
type made struct {
	manifest, config []byte
	layers           [][]byte
}

func makeConfig(t testing.TB, platform ocispec.Platform, layers ...[]byte) []byte {
	t.Helper()
	var diffs []digest.Digest
	for _, l := range layers {
		diffs = append(diffs, digest.FromBytes(l))
	}
	return asJSON(t, map[string]any{
		"os": platform.OS, "architecture": platform.Architecture, "variant": platform.Variant,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
}

// makeImage makes an image of one small and one large layer.
func makeImage(t testing.TB, platform ocispec.Platform, seed string) made {
	t.Helper()
	m := made{layers: [][]byte{[]byte("layer of " + seed), bytes.Repeat([]byte(seed+" "), 5000)}}
	return m.again(t, platform)
}

// again is an image of the same layers.
func (m made) again(t testing.TB, platform ocispec.Platform) made {
	t.Helper()
	m.config = makeConfig(t, platform, m.layers...)
	m.manifest = asJSON(t, manifestOf(m))
	return m
}

// manifestOf is the manifest of an image.
func manifestOf(m made) ocispec.Manifest {
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: describe(ocispec.MediaTypeImageConfig, m.config)}
	for _, l := range m.layers {
		manifest.Layers = append(manifest.Layers, describe(ocispec.MediaTypeImageLayer, l))
	}
	return manifest
}

func indexOf(list ...ocispec.Descriptor) ocispec.Index {
	return ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list}
}

func blobItem(data []byte) item { return item{name: blobPath(digest.FromBytes(data)), data: data} }

func (m made) items() []item {
	out := []item{blobItem(m.manifest), blobItem(m.config)}
	for _, l := range m.layers {
		out = append(out, blobItem(l))
	}
	return out
}

func (m made) descriptor() ocispec.Descriptor {
	return describe(ocispec.MediaTypeImageManifest, m.manifest)
}

func named(d ocispec.Descriptor, name string) ocispec.Descriptor {
	d.Annotations = map[string]string{images.AnnotationImageName: name}
	return d
}

func on(d ocispec.Descriptor, p ocispec.Platform) ocispec.Descriptor {
	d.Platform = &p
	return d
}

func indexItem(t testing.TB, list ...ocispec.Descriptor) item {
	t.Helper()
	return item{name: "index.json", data: asJSON(t, indexOf(list...))}
}

// ociArchive is an archive of one image, with the index at its end.
func ociArchive(t testing.TB, m made, name string) []byte {
	t.Helper()
	items := append([]item{{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}}, m.items()...)
	return pack(t, append(items, indexItem(t, named(m.descriptor(), name))))
}

// dockerArchive is an archive as docker save wrote it before it supported OCI.
func dockerArchive(t testing.TB, m made, tags ...string) []byte {
	t.Helper()
	img := dockerImage{Config: digest.FromBytes(m.config).Encoded() + ".json", RepoTags: tags}
	var items []item
	for i, l := range m.layers {
		name := fmt.Sprintf("%d/layer.tar", i)
		img.Layers = append(img.Layers, name)
		items = append(items, item{name: fmt.Sprintf("%d/", i)}, item{name: name, data: l})
	}
	items = append(items, item{name: img.Config, data: m.config})
	return pack(t, append(items, item{name: "manifest.json", data: asJSON(t, []dockerImage{img})}))
}
