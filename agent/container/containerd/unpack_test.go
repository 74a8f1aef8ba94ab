package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/platforms"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tinylet/tinylet/agent/container"
)

// image is an image with layers in the store of a server.
type image struct {
	target, config ocispec.Descriptor
	chain          []string
}

func storeImage(t *testing.T, srv *server, layers ...string) image {
	t.Helper()
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		srv.blobs[d.Digest] = storedBlob{data: data}
		return d
	}
	document := func(mediaType string, v any) ocispec.Descriptor {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return put(mediaType, data)
	}
	host := platforms.DefaultSpec()
	config := ocispec.Image{Platform: host, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, layer := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromString("diff of "+layer))
		manifest.Layers = append(manifest.Layers, put(ocispec.MediaTypeImageLayer, []byte(layer)))
	}
	manifest.Config = document(ocispec.MediaTypeImageConfig, config)
	m := document(ocispec.MediaTypeImageManifest, manifest)
	m.Platform = &host
	index := document(ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{m}})
	out := image{target: index, config: manifest.Config}
	for _, id := range identity.ChainIDs(slices.Clone(config.RootFS.DiffIDs)) {
		out.chain = append(out.chain, id.String())
	}
	return out
}

func TestUnpack(t *testing.T) {
	srv, endpoint := serve(t)
	srv.snapshots = map[string]bool{}
	s := newStore(t, endpoint)
	i := storeImage(t, srv, "a", "b", "c")
	unpack := func() {
		t.Helper()
		got, err := s.Unpack(t.Context(), i.target, platforms.Default(), "overlayfs")
		if err != nil || got != i.chain[2] {
			t.Fatalf("got %q, %v; want %q", got, err, i.chain[2])
		}
	}
	want := []string{"overlayfs " + i.chain[0], "overlayfs " + i.chain[1], "overlayfs " + i.chain[2]}
	slices.Sort(want)
	unpack()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(srv.snapshots))); diff != "" {
		t.Errorf("snapshots (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a on ", "b on " + i.chain[0], "c on " + i.chain[1]}, srv.unpacked); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	if got := srv.blobs[i.config.Digest].labels["containerd.io/gc.ref.snapshot.overlayfs"]; got != i.chain[2] {
		t.Errorf("the configuration refers to the snapshot %q", got)
	}
	if got := srv.blobs[digest.FromString("b")].labels["containerd.io/uncompressed"]; got != digest.FromString("diff of b").String() {
		t.Errorf("the layer is labeled with the diff ID %q", got)
	}
	srv.unpacked = nil
	unpack()
	if len(srv.unpacked) > 0 {
		t.Errorf("unpacked again: %q", srv.unpacked)
	}
	// The last layer is there in part, after a power cut.
	delete(srv.snapshots, "overlayfs "+i.chain[2])
	srv.snapshots["overlayfs "+leaseID+"-"+i.chain[2]] = true
	unpack()
	if len(srv.unpacked) != 1 || len(srv.snapshots) != 3 {
		t.Errorf("after an interrupted unpacking: unpacked %q, snapshots %q", srv.unpacked, slices.Collect(maps.Keys(srv.snapshots)))
	}
}

func TestUnpackFails(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(srv *server, i *image)
		want error
		text string
	}{
		{"a layer is missing", func(srv *server, _ *image) { delete(srv.blobs, digest.FromString("b")) }, container.ErrNotFound, "layer 2 of 2"},
		{"a layer has other content", func(srv *server, _ *image) {
			srv.blobs[digest.FromString("b")] = storedBlob{data: []byte("x")}
		}, container.ErrCorrupt, "layer 2 of 2"},
		{"the extraction fails", func(srv *server, _ *image) {
			srv.refusals = map[string]error{"diff.v1.Diff/Apply": status.Error(codes.Unknown, "no space left on device")}
		}, nil, "no space left"},
		{"the manifest is large", func(srv *server, i *image) {
			data := bytes.Repeat([]byte{' '}, MaxDocument+1)
			i.target = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(data), Size: 10}
			srv.blobs[i.target.Digest] = storedBlob{data: data}
		}, ErrDocument, "4194305 bytes"},
		{"the image is missing", func(_ *server, i *image) { i.target.Digest = digest.FromString("none") }, container.ErrNotFound, "read image"},
		{"it has no layer", func(srv *server, i *image) { *i = storeImage(t, srv) }, ErrDocument, "0 layers"},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv, endpoint := serve(t)
			srv.snapshots = map[string]bool{}
			i := storeImage(t, srv, "a", "b")
			row.do(srv, &i)
			_, err := newStore(t, endpoint).Unpack(t.Context(), i.target, platforms.Default(), "overlayfs")
			if err == nil || row.want != nil && !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) {
				t.Errorf("got %v, want %v: %q", err, row.want, row.text)
			}
			for key := range srv.snapshots {
				if strings.Contains(key, leaseID) {
					t.Errorf("the snapshot %q is left", key)
				}
			}
		})
	}
}
