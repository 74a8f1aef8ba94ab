package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func blobOf(data []byte) container.Blob {
	return container.Blob{Descriptor: ocispec.Descriptor{MediaType: "application/x", Digest: digest.FromBytes(data), Size: int64(len(data))}}
}

func bytesOf(n int) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func newStore(t testing.TB, endpoint string) *Store {
	t.Helper()
	s, err := New(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Store
}

func TestImage(t *testing.T) {
	srv, endpoint := serve(t)
	s := newStore(t, endpoint)
	ctx := t.Context()
	for range 2 {
		if err := s.Protect(ctx); err != nil {
			t.Fatal(err)
		}
	}
	layer, config, manifest := bytesOf(5*chunk+17), []byte("{}"), []byte(`{"a":1}`)
	m := blobOf(manifest)
	m.Refs = map[string]digest.Digest{"config": blobOf(config).Digest, "l.0": blobOf(layer).Digest}
	for range 2 { // the second time all is there
		for _, b := range []struct {
			container.Blob
			data []byte
		}{{blobOf(layer), layer}, {blobOf(config), config}, {m, manifest}, {blobOf(nil), nil}} {
			if err := s.Put(ctx, b.Blob, bytes.NewReader(b.data)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"docker.io/library/a:1", "docker.io/library/a:2"} {
			if err := s.Tag(ctx, name, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(srv.blobs[blobOf(layer).Digest].data, layer) {
		t.Error("the layer is not what was put")
	}
	if srv.sent != len(layer)+len(config)+len(manifest) {
		t.Errorf("%d bytes were sent", srv.sent)
	}
	want := map[string]string{"containerd.io/gc.ref.content.config": blobOf(config).Digest.String(), "containerd.io/gc.ref.content.l.0": blobOf(layer).Digest.String()}
	if diff := cmp.Diff(want, srv.blobs[m.Digest].labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	target := "application/x " + m.Digest.String()
	if diff := cmp.Diff(map[string]string{"docker.io/library/a:1": target, "docker.io/library/a:2": target}, srv.images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := s.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(srv.leases) > 0 || s.client != nil {
		t.Errorf("leases %v, connection %v", srv.leases, s.client)
	}
}

// TestLabels: Put adds missing labels to an existing blob.
func TestLabels(t *testing.T) {
	srv, endpoint := serve(t)
	s := newStore(t, endpoint)
	b := blobOf([]byte("x"))
	srv.blobs[b.Digest] = storedBlob{data: []byte("x")}
	b.Refs = map[string]digest.Digest{"m.0": "sha256:y"}
	if err := s.Put(t.Context(), b, iotest.ErrReader(errors.New("not to be read"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"containerd.io/gc.ref.content.m.0": "sha256:y"}, srv.blobs[b.Digest].labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestResume(t *testing.T) {
	for _, seeks := range []bool{true, false} {
		t.Run(fmt.Sprintf("seeks: %v", seeks), func(t *testing.T) {
			srv, endpoint := serve(t)
			s := newStore(t, endpoint)
			data := bytesOf(6*chunk + 5)
			reader := func() io.Reader {
				if seeks {
					return bytes.NewReader(data)
				}
				return bytes.NewBuffer(bytes.Clone(data))
			}
			srv.cut = 4 * chunk
			if err := s.Put(t.Context(), blobOf(data), reader()); !errors.Is(err, container.ErrUnavailable) {
				t.Fatalf("the stream that was cut: %v", err)
			}
			if err := s.Put(t.Context(), blobOf(data), reader()); err != nil {
				t.Fatal(err)
			}
			if srv.sent != len(data) {
				t.Errorf("%d bytes were sent for %d", srv.sent, len(data))
			}
		})
	}
}

// TestCorrupt: Put distinguishes corrupt content from the remains of a power cut.
func TestCorrupt(t *testing.T) {
	srv, endpoint := serve(t)
	s := newStore(t, endpoint)
	data := bytesOf(1000)
	b := blobOf(data)
	if err := s.Put(t.Context(), b, bytes.NewReader(bytesOf(2000)[:1000])); !errors.Is(err, container.ErrCorrupt) {
		t.Errorf("content with another digest: %v", err)
	}
	if len(srv.ingests) > 0 {
		t.Error("it was not dropped")
	}
	srv.ingests[writeRef(b.Digest)] = make([]byte, 500)
	if err := s.Put(t.Context(), b, bytes.NewReader(data)); err == nil || errors.Is(err, container.ErrCorrupt) {
		t.Errorf("good content after zeroes: %v", err)
	}
	if err := s.Put(t.Context(), b, bytes.NewReader(data)); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
	more := blobOf(bytesOf(300))
	srv.ingests[writeRef(more.Digest)] = make([]byte, 400)
	if err := s.Put(t.Context(), more, bytes.NewReader(bytesOf(300))); err != nil {
		t.Errorf("content of which too much was there: %v", err)
	}
}

func TestReaderFails(t *testing.T) {
	_, endpoint := serve(t)
	s := newStore(t, endpoint)
	b := blobOf(bytesOf(1000))
	broken := errors.New("disk on fire")
	err := s.Put(t.Context(), b, io.MultiReader(bytes.NewReader(bytesOf(1000)[:500]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := s.Put(t.Context(), b, bytes.NewReader(bytesOf(1000)[:500])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reader that ends early: %v", err)
	}
}

func TestFailures(t *testing.T) {
	_, endpoint := serve(t)
	s := newStore(t, endpoint)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Protect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	away := newStore(t, filepath.Join(t.TempDir(), "none.sock"))
	if err := away.Protect(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("without containerd: %v", err)
	}
	if err := away.Put(t.Context(), blobOf(nil), bytes.NewReader(nil)); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("without containerd: %v", err)
	}
	for _, bad := range []string{"", "tcp://127.0.0.1:1", "relative"} {
		if _, err := New(bad); err == nil {
			t.Errorf("endpoint %q was accepted", bad)
		}
	}
}

// TestContainerdStops checks the error of a Put during which containerd ends between two
// requests.
func TestContainerdStops(t *testing.T) {
	srv, endpoint := serve(t)
	s := newStore(t, endpoint)
	data := bytesOf(3 * chunk)
	first, rest := bytes.NewReader(data[:2*chunk]), bytes.NewReader(data[2*chunk:])
	stop := readerFunc(func([]byte) (int, error) {
		srv.grpc.Stop()
		time.Sleep(20 * time.Millisecond) // the stream ends before the next request
		return 0, io.EOF
	})
	if err := s.Put(t.Context(), blobOf(data), io.MultiReader(first, stop, rest)); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// BenchmarkPut stores a blob of 8 MiB.
func BenchmarkPut(b *testing.B) {
	data := bytesOf(8 << 20)
	blob := blobOf(data)
	srv, endpoint := serve(b)
	s := newStore(b, endpoint)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Put(b.Context(), blob, bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
		srv.mu.Lock()
		delete(srv.blobs, blob.Digest)
		srv.mu.Unlock()
	}
}
