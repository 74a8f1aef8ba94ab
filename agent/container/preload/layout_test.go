package preload

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/platforms"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

var (
	board = ocispec.Platform{OS: "linux", Architecture: "arm64"}
	other = ocispec.Platform{OS: "linux", Architecture: "riscv64"}
	v7    = ocispec.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}
)

func planOf(ctx context.Context, data []byte) (*plan, *archive, error) {
	a, err := open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	p := planner{archive: a, host: board, runs: platforms.Only(board)}
	plan, err := p.read(ctx)
	return plan, a, err
}

// extracted returns a plan's blobs, read as in an import, and checks their
// digests.
func extracted(t *testing.T, plan *plan, a *archive) map[digest.Digest]int {
	t.Helper()
	out := make(map[digest.Digest]int)
	serials := make(map[int]bool)
	for _, s := range plan.blobs {
		switch {
		case s.data != nil:
			out[digest.FromBytes(s.data)] = len(s.data)
		case a.gzip:
			serials[s.serial] = true
		default:
			data, err := io.ReadAll(a.section(t.Context(), &entry{offset: s.offset, size: s.Size}))
			if err != nil {
				t.Fatal(err)
			}
			out[digest.FromBytes(data)] = len(data)
		}
	}
	if err := a.each(t.Context(), serials, func(_ *entry, r io.Reader) error {
		data, err := io.ReadAll(r)
		out[digest.FromBytes(data)] = len(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// sound checks that every blob that another refers to is in the plan.
func sound(t *testing.T, plan *plan, a *archive) {
	t.Helper()
	have := extracted(t, plan, a)
	for _, s := range plan.blobs {
		if size, ok := have[s.Digest]; !ok || int64(size) != s.Size {
			t.Errorf("blob %s of %d bytes is not what the archive gives", s.Digest, s.Size)
		}
		for role, ref := range s.Refs {
			if _, ok := have[ref]; !ok {
				t.Errorf("%s of %s is not in the plan: %s", role, s.Digest, ref)
			}
		}
	}
	for _, img := range plan.images {
		if _, ok := have[img.target.Digest]; !ok {
			t.Errorf("image %v has no target", img.names)
		}
	}
}

func TestPlans(t *testing.T) {
	a, b, c := makeImage(t, board, "a"), makeImage(t, board, "b"), makeImage(t, other, "c")
	seven := makeImage(t, v7, "seven")
	nested := asJSON(t, indexOf(
		on(c.descriptor(), other), on(a.descriptor(), board), on(seven.descriptor(), v7),
	))
	list := describe(ocispec.MediaTypeImageIndex, nested)
	attestation := makeImage(t, ocispec.Platform{OS: "unknown", Architecture: "unknown"}, "attestation")
	attested := asJSON(t, indexOf(
		on(c.descriptor(), other), on(a.descriptor(), board),
		on(attestation.descriptor(), ocispec.Platform{OS: "unknown", Architecture: "unknown"}),
	))
	ref := func(d ocispec.Descriptor, name string) ocispec.Descriptor {
		d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
		return d
	}
	zipped := [][]byte{zip(t, a.layers[0]), zip(t, a.layers[1])}
	crane := dockerImage{Config: digest.FromBytes(a.config).String(), RepoTags: []string{"a:1"}, Layers: []string{"x.tar.gz", "y.tar.gz"}}
	newDocker := dockerImage{Config: blobPath(digest.FromBytes(a.config)), RepoTags: []string{"a:1"}, Layers: []string{blobPath(digest.FromBytes(a.layers[0])), blobPath(digest.FromBytes(a.layers[1]))}}
	synthetic := func(m made) digest.Digest { // the digest that dockerArchive's manifest gets
		plan, _, err := planOf(t.Context(), dockerArchive(t, m, "x"))
		if err != nil {
			t.Fatal(err)
		}
		return plan.images[0].target.Digest
	}
	tests := []struct {
		name  string
		data  []byte
		want  map[string]digest.Digest // by name
		blobs int
	}{
		{"OCI", ociArchive(t, a, "a:1"), map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(a.manifest)}, 4},
		{"two images that share nothing", pack(t, slices.Concat(a.items(), b.items(), []item{indexItem(t, named(a.descriptor(), "a:1"), named(b.descriptor(), "r.example/b"))})),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(a.manifest), "r.example/b:latest": digest.FromBytes(b.manifest)}, 8},
		{"one image with two names", pack(t, append(a.items(), indexItem(t, named(a.descriptor(), "a:1"), named(a.descriptor(), "a:2")))),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(a.manifest), "docker.io/library/a:2": digest.FromBytes(a.manifest)}, 4},
		{"name in the spec's annotation", pack(t, append(a.items(), indexItem(t, ref(a.descriptor(), "r.example/a:1")))), map[string]digest.Digest{"r.example/a:1": digest.FromBytes(a.manifest)}, 4},
		{"index at the beginning, names with ./", pack(t, append([]item{{name: "./index.json", data: asJSON(t, indexOf(named(a.descriptor(), "a:1")))}}, a.items()...)),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(a.manifest)}, 4},
		{"index of all platforms", pack(t, slices.Concat(a.items(), c.items(), seven.items(), []item{blobItem(nested), indexItem(t, named(list, "a:1"))})),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(nested)}, 5},
		{"index, and only our platform's content", pack(t, append(a.items(), blobItem(nested), indexItem(t, named(list, "a:1")))),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(nested)}, 5},
		{"index with attestations, and only our platform's content",
			pack(t, append(a.items(), blobItem(attested), indexItem(t, named(describe(ocispec.MediaTypeImageIndex, attested), "a:1")))),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(attested)}, 5},
		{"index with attestations, and their content, too",
			pack(t, slices.Concat(a.items(), attestation.items(), []item{blobItem(attested), indexItem(t, named(describe(ocispec.MediaTypeImageIndex, attested), "a:1"))})),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(attested)}, 5},
		{"index, and only a lesser platform's content", pack(t, append(seven.items(), blobItem(nested), indexItem(t, named(list, "a:1")))),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(seven.manifest)}, 4},
		{"platforms side by side under one name", pack(t, slices.Concat(a.items(), c.items(), []item{indexItem(t, named(on(c.descriptor(), other), "a:1"), named(on(a.descriptor(), board), "a:1"))})),
			map[string]digest.Digest{"docker.io/library/a:1": digest.FromBytes(a.manifest)}, 4},
		{"docker save", dockerArchive(t, a, "a:1", "r.example/a:2"), map[string]digest.Digest{"docker.io/library/a:1": synthetic(a), "r.example/a:2": synthetic(a)}, 4},
		{"docker save with blobs", pack(t, append(a.items(), item{name: "manifest.json", data: asJSON(t, []dockerImage{newDocker})})), map[string]digest.Digest{"docker.io/library/a:1": synthetic(a)}, 4},
		{"docker save with an index without names", pack(t, append(a.items(), indexItem(t, a.descriptor()), item{name: "manifest.json", data: asJSON(t, []dockerImage{newDocker})})), map[string]digest.Digest{"docker.io/library/a:1": synthetic(a)}, 4},
		{"docker archive with compressed layers", pack(t, []item{{name: digest.FromBytes(a.config).String(), data: a.config}, {name: "x.tar.gz", data: zipped[0]}, {name: "y.tar.gz", data: zipped[1]}, {name: "manifest.json", data: asJSON(t, []dockerImage{crane})}}), nil, 4},
		{"docker save with a repeated layer", func() []byte {
			l := []byte("layer")
			m := makeConfig(t, board, l, l)
			return pack(t, []item{{name: "1/layer.tar", data: l}, {name: "2/layer.tar", link: "../1/layer.tar"}, {name: "c.json", data: m},
				{name: "manifest.json", data: asJSON(t, []dockerImage{{Config: "c.json", RepoTags: []string{"a:1"}, Layers: []string{"1/layer.tar", "2/layer.tar"}}})}})
		}(), nil, 3},
	}
	for _, tt := range tests {
		for _, form := range []string{"plain", "gzip"} {
			t.Run(tt.name+", "+form, func(t *testing.T) {
				data := tt.data
				if form == "gzip" {
					data = zip(t, data)
				}
				plan, a, err := planOf(t.Context(), data)
				if err != nil {
					t.Fatal(err)
				}
				sound(t, plan, a)
				if len(plan.blobs) != tt.blobs {
					t.Errorf("%d blobs, want %d", len(plan.blobs), tt.blobs)
				}
				got := make(map[string]digest.Digest)
				for _, img := range plan.images {
					for _, name := range img.names {
						got[name.String()] = img.target.Digest
					}
				}
				if diff := cmp.Diff(tt.want, got); tt.want != nil && diff != "" {
					t.Errorf("images (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestBadArchives(t *testing.T) {
	a, c := makeImage(t, board, "a"), makeImage(t, other, "c")
	whole := ociArchive(t, a, "a:1")
	edit := func(change func(d *ocispec.Manifest)) []byte {
		doc := manifestOf(a)
		change(&doc)
		m := made{manifest: asJSON(t, doc), config: a.config, layers: a.layers}
		return ociArchive(t, m, "a:1")
	}
	var deep []item
	d := a.descriptor()
	for range maxDepth + 2 {
		data := asJSON(t, indexOf(d))
		deep, d = append(deep, blobItem(data)), describe(ocispec.MediaTypeImageIndex, data)
	}
	wrong := slices.Clone(a.manifest)
	wrong[len(wrong)-2] ^= 1
	tests := []struct {
		name string
		data []byte
		says string
	}{
		{"empty", nil, "empty"},
		{"text", []byte("this is not an archive"), "truncated"},
		{"noise", bytes.Repeat([]byte{7}, 2048), "tar"},
		{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3}, "zstd"},
		{"cut in a layer", whole[:len(whole)/2], "truncated"},
		{"cut and compressed", zip(t, whole)[:len(zip(t, whole))*3/4], "truncated"},
		{"another tar", pack(t, []item{{name: "etc/passwd", data: []byte("root")}}), "neither"},
		{"only paths that lead out", pack(t, []item{{name: "../index.json", data: []byte("{}")}, {name: "/manifest.json", data: []byte("[]")}}), "neither"},
		{"index is no JSON", pack(t, []item{{name: "index.json", data: []byte("{")}}), "index.json"},
		{"manifest.json is no JSON", pack(t, []item{{name: "manifest.json", data: []byte("[1")}}), "manifest.json"},
		{"index is a link to itself", pack(t, []item{{name: "index.json", link: "index.json"}}), "neither"},
		{"no names", pack(t, append(a.items(), indexItem(t, a.descriptor()))), "names"},
		{"another platform", ociArchive(t, c, "c:1"), "linux/riscv64"},
		{"another platform from docker", dockerArchive(t, c, "c:1"), "linux/riscv64"},
		{"index of other platforms", pack(t, append(c.items(), indexItem(t, named(on(c.descriptor(), other), "c:1"), named(on(c.descriptor(), other), "c:1")))), "linux/riscv64"},
		{"index without manifests", func() []byte {
			empty := asJSON(t, indexOf())
			return pack(t, []item{blobItem(empty), indexItem(t, named(describe(ocispec.MediaTypeImageIndex, empty), "a:1"))})
		}(), "no manifests"},
		{"index in index in index", pack(t, append(deep, indexItem(t, named(d, "a:1")))), "too many"},
		{"missing manifest", pack(t, []item{indexItem(t, named(a.descriptor(), "a:1"))}), "missing"},
		{"missing layer", pack(t, append(a.items()[:3], indexItem(t, named(a.descriptor(), "a:1")))), "missing"},
		{"missing docker layer", pack(t, []item{{name: "c", data: a.config}, {name: "manifest.json", data: asJSON(t, []dockerImage{{Config: "c", RepoTags: []string{"a:1"}, Layers: []string{"x", "y"}}})}}), "missing"},
		{"manifest with another content", pack(t, append([]item{{name: blobPath(digest.FromBytes(a.manifest)), data: wrong}}, append(a.items()[1:], indexItem(t, named(a.descriptor(), "a:1")))...)), "digest"},
		{"layer of another size", edit(func(d *ocispec.Manifest) { d.Layers[0].Size++ }), "bytes"},
		{"digest leads out", edit(func(d *ocispec.Manifest) { d.Layers[0].Digest = "sha256:../../../etc/passwd" }), "digest"},
		{"digest is unknown", edit(func(d *ocispec.Manifest) { d.Layers[0].Digest = "md5:00" }), "digest"},
		{"fewer layers than the config says", edit(func(d *ocispec.Manifest) { d.Layers = d.Layers[:1] }), "layers"},
		{"no config", edit(func(d *ocispec.Manifest) { d.Config = ocispec.Descriptor{} }), "digest"},
		{"huge manifest", pack(t, []item{{name: "index.json", data: bytes.Repeat([]byte(" "), maxJSON+1)}}), "large"},
		{"index and a later one that is no JSON", pack(t, append(a.items(), indexItem(t, named(a.descriptor(), "a:1")), item{name: "index.json", data: []byte("text")})), "index.json"},
		{"one layer with two digests", func() []byte {
			var items []item
			var list []dockerImage
			for _, other := range []string{"x", "y"} {
				items = append(items, item{name: other, data: makeConfig(t, board, []byte(other))})
				list = append(list, dockerImage{Config: other, RepoTags: []string{other + ":1"}, Layers: []string{"l"}})
			}
			return pack(t, append(items, item{name: "l", data: []byte("layer")}, item{name: "manifest.json", data: asJSON(t, list)}))
		}(), "digests"},
		{"more layers than any images", func() []byte {
			img := dockerImage{Config: "c", RepoTags: []string{"a:1"}}
			var layers [][]byte
			for range maxLayers {
				img.Layers, layers = append(img.Layers, "l"), append(layers, []byte("layer"))
			}
			list := slices.Repeat([]dockerImage{img}, maxAllLayers/maxLayers+1)
			return pack(t, []item{{name: "c", data: makeConfig(t, board, layers...)}, {name: "l", data: layers[0]}, {name: "manifest.json", data: asJSON(t, list)}})
		}(), "layers"},
		{"more names than any images", func() []byte {
			img := dockerImage{Config: "c"}
			for i := range maxImages + 1 {
				img.RepoTags = append(img.RepoTags, fmt.Sprintf("a:%d", i))
			}
			return pack(t, []item{{name: "manifest.json", data: asJSON(t, []dockerImage{img})}})
		}(), "names"},
		{"an artifact, no image", func() []byte {
			m := made{config: []byte("{}")}
			m.manifest = asJSON(t, ocispec.Manifest{Config: describe(ocispec.MediaTypeImageConfig, m.config)})
			return ociArchive(t, m, "a:1")
		}(), "container image"},
		{"more entries than any image", func() []byte {
			items := make([]item, maxEntries+1)
			for i := range items {
				items[i].name = "x"
			}
			return pack(t, items)
		}(), "entries"},
		{"names without end", func() []byte {
			items := make([]item, maxNames/4000+2)
			for i := range items {
				items[i].name = strings.Repeat("x", 4000)
			}
			return pack(t, items)
		}(), "names"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := planOf(t.Context(), tt.data)
			if !errors.Is(err, errInvalidArchive) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v, want one with %q", err, tt.says)
			}
		})
	}
}

// overwritten is a file that another one replaces in place when it is read for the third
// time: after the first bytes and the first pass.
type overwritten struct {
	before, after []byte
	begins        int
}

func (o *overwritten) ReadAt(p []byte, offset int64) (int, error) {
	if offset == 0 {
		o.begins++
	}
	data := o.before
	if o.begins > 2 {
		data = o.after
	}
	return bytes.NewReader(data).ReadAt(p, offset)
}

func TestOverwrittenArchive(t *testing.T) {
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: "index.json", Size: 1 << 60, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	file := &overwritten{after: zip(t, out.Bytes())}
	file.before = zip(t, pack(t, []item{{name: "index.json", data: append([]byte("{}"), bytes.Repeat([]byte(" "), smallJSON)...)}}))
	a, err := open(file, int64(max(len(file.before), len(file.after))))
	if err != nil {
		t.Fatal(err)
	}
	p := planner{archive: a, host: board, runs: platforms.Only(board)}
	if _, err := p.read(t.Context()); !errors.Is(err, errChanged) {
		t.Errorf("the error is %v, want %v", err, errChanged)
	}
}

func TestPlanEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := makeImage(t, board, "a")
	for _, data := range [][]byte{ociArchive(t, m, "a:1"), zip(t, ociArchive(t, m, "a:1"))} {
		if _, _, err := planOf(ctx, data); !errors.Is(err, context.Canceled) || errors.Is(err, errInvalidArchive) {
			t.Errorf("the error is %v", err)
		}
	}
}

func FuzzArchive(f *testing.F) {
	a, c := makeImage(f, board, "a"), makeImage(f, other, "c")
	a.layers[1], c.layers[1] = []byte("small: the fuzzer shrinks what it finds"), []byte("small")
	a, c = a.again(f, board), c.again(f, other)
	f.Add(ociArchive(f, a, "a:1"))
	f.Add(dockerArchive(f, a, "a:1"))
	f.Add(zip(f, ociArchive(f, a, "a:1")))
	f.Add(ociArchive(f, c, "c:1"))
	f.Add(pack(f, []item{{name: "index.json", link: "x"}, {name: "x", data: []byte("{}")}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, a, err := planOf(t.Context(), data)
		if err != nil {
			if !errors.Is(err, errInvalidArchive) {
				t.Errorf("the error is not the archive's: %v", err)
			}
			return
		}
		for _, s := range plan.blobs {
			if !validDigest(s.Digest) || s.Size < 0 || !a.gzip && s.data == nil && s.offset+s.Size > int64(len(data)) {
				t.Errorf("blob %+v", s.Blob)
			}
		}
	})
}

// FuzzIndex puts any index and manifest into a valid archive.
func FuzzIndex(f *testing.F) {
	a := makeImage(f, board, "a")
	f.Add(asJSON(f, indexOf(named(a.descriptor(), "a:1"))), asJSON(f, []dockerImage{{Config: "x", RepoTags: []string{"a:1"}, Layers: []string{"y"}}}))
	f.Fuzz(func(t *testing.T, index, manifest []byte) {
		items := append(a.items(), item{name: "index.json", data: index}, item{name: "manifest.json", data: manifest}, item{name: "x", data: a.config}, item{name: "y", data: a.layers[0]})
		if _, _, err := planOf(t.Context(), pack(t, items)); err != nil && !errors.Is(err, errInvalidArchive) {
			t.Errorf("the error is not the archive's: %v", err)
		}
	})
}
