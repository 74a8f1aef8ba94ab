package native

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// registry serves one image, with faults.
type registry struct {
	*httptest.Server
	t        *testing.T
	blobs    map[digest.Digest][]byte
	types    map[digest.Digest]string
	manifest digest.Digest
	layer    digest.Digest

	mu       sync.Mutex
	user     string // of basic authentication, "" for none
	cut      int    // ends the response with the layer after so many bytes, 0 does not
	tampered bool   // the layer has another content
	ranges   []string
}

// newRegistry serves an image with one layer of random size, and an index with an image of
// another platform before it.
func newRegistry(t *testing.T, size int) *registry {
	t.Helper()
	r := &registry{t: t, blobs: map[digest.Digest][]byte{}, types: map[digest.Digest]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	content := bytes.Repeat([]byte("tinylet "), size/8)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(content))}), write(w, content), w.Close()); err != nil {
		t.Fatal(err)
	}
	l := r.add(ocispec.MediaTypeImageLayer, layer.Bytes())
	r.layer = l.Digest
	manifest := func(architecture string) ocispec.Descriptor {
		config := r.document(ocispec.MediaTypeImageConfig, ocispec.Image{
			Platform: ocispec.Platform{Architecture: architecture, OS: "linux"},
			RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{l.Digest}}, Config: ocispec.ImageConfig{Cmd: []string{"/file"}},
		})
		d := r.document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{l},
		})
		d.Platform = &ocispec.Platform{Architecture: architecture, OS: "linux"}
		return d
	}
	other := map[string]string{"arm64": "amd64"}[runtime.GOARCH]
	if other == "" {
		other = "arm64"
	}
	index := r.document(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{manifest(other), manifest(runtime.GOARCH)},
	})
	r.manifest = index.Digest
	return r
}

func write(w *tar.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

func (r *registry) add(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	r.blobs[d.Digest], r.types[d.Digest] = data, mediaType
	return d
}

func (r *registry) document(mediaType string, document any) ocispec.Descriptor {
	r.t.Helper()
	data, err := json.Marshal(document)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.add(mediaType, data)
}

// host is the address of the registry.
func (r *registry) host() string { return strings.TrimPrefix(r.URL, "http://") }

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if user, password, _ := q.BasicAuth(); r.user != "" && user+":"+password != r.user {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	part := q.URL.Path[strings.LastIndexByte(q.URL.Path, '/')+1:]
	d := digest.Digest(part)
	if part == "1" {
		d = r.manifest
	}
	data, ok := r.blobs[d]
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", r.types[d])
	w.Header().Set("Docker-Content-Digest", d.String())
	if d == r.layer && q.Method == http.MethodGet {
		r.ranges = append(r.ranges, q.Header.Get("Range"))
		if r.tampered {
			data = bytes.ToUpper(data)
		}
		if r.cut > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:r.cut])
			panic(http.ErrAbortHandler) // the connection breaks
		}
	}
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
}

// pull pulls the image as the driver does, by another name of the registry.
func (e *testEnv) pull(t *testing.T, d *Driver, name string, auth *runtimeapi.AuthConfig) (string, error) {
	t.Helper()
	return d.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: name}, auth, nil)
}

// TestPull pulls from a registry that asks for a password, breaks off, and has other content
// than it should, and through a mirror.
func TestPull(t *testing.T) {
	e := newEnv(t)
	var received atomic.Int64
	e.hostDir = t.TempDir()
	e.received = func(n int) { received.Add(int64(n)) }
	d := e.newDriver(t)
	const size = 8 << 20
	remove := func(t *testing.T, name string) {
		t.Helper()
		if err := d.RemoveImage(context.WithoutCancel(t.Context()), &runtimeapi.ImageSpec{Image: name}); err != nil {
			t.Error(err)
		}
	}
	t.Run("names", func(t *testing.T) {
		r := newRegistry(t, size)
		name := r.host() + "/test/image:1"
		received.Store(0)
		id, err := e.pull(t, d, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer remove(t, name)
		for _, ref := range []string{name, id, r.host() + "/test/image@" + r.manifest.String()} {
			if i, err := d.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: ref}); err != nil || i.GetId() != id {
				t.Errorf("image %q: %v, %v", ref, i, err)
			}
		}
		if n := received.Load(); n < size || n > size+64<<10 {
			t.Errorf("%d bytes were received", n)
		}
		received.Store(0)
		if again, err := e.pull(t, d, r.host()+"/test/image@"+r.manifest.String(), nil); err != nil || again != id || received.Load() > 64<<10 {
			t.Errorf("the second pull: %q, %v, %d bytes", again, err, received.Load())
		}
	})
	t.Run("password", func(t *testing.T) {
		r := newRegistry(t, 1<<10)
		r.user = "user:secret"
		name := r.host() + "/private/image:1"
		if _, err := e.pull(t, d, name, &runtimeapi.AuthConfig{Username: "user", Password: "wrong-password"}); err == nil || strings.Contains(err.Error(), "wrong-password") {
			t.Errorf("a wrong password: %v", err)
		}
		if _, err := e.pull(t, d, name, &runtimeapi.AuthConfig{Auth: "dXNlcjpzZWNyZXQ=", ServerAddress: r.URL}); err != nil {
			t.Error(err)
		}
		remove(t, name)
	})
	t.Run("broken link", func(t *testing.T) {
		r := newRegistry(t, size)
		name := r.host() + "/test/image:1"
		r.cut = size / 2
		if _, err := e.pull(t, d, name, nil); err == nil {
			t.Fatal("the pull of half a layer succeeded")
		}
		r.mu.Lock()
		r.cut, r.ranges = 0, nil
		r.mu.Unlock()
		received.Store(0)
		if _, err := e.pull(t, d, name, nil); err != nil {
			t.Fatal(err)
		}
		if n := received.Load(); n > size/2+size/4 {
			t.Errorf("the resumed pull has received %d of %d bytes; ranges %q", n, size, r.ranges)
		}
		remove(t, name)
	})
	t.Run("other content", func(t *testing.T) {
		r := newRegistry(t, 1<<10)
		r.tampered = true
		name := r.host() + "/test/image:1"
		if _, err := e.pull(t, d, name, nil); !errors.Is(err, container.ErrCorrupt) {
			t.Errorf("a layer with another digest: %v, want ErrCorrupt", err)
		}
		if i, err := d.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: name}); i != nil || err != nil {
			t.Errorf("the image is %v, %v", i, err)
		}
		r.mu.Lock()
		r.tampered = false
		r.mu.Unlock()
		if _, err := e.pull(t, d, name, nil); err != nil {
			t.Errorf("the same pull when the registry has the content: %v", err)
		}
		remove(t, name)
	})
	t.Run("absent", func(t *testing.T) {
		r := newRegistry(t, 1<<10)
		if _, err := e.pull(t, d, r.host()+"/test/image:2", nil); !errors.Is(err, container.ErrNotFound) {
			t.Errorf("an absent image: %v, want ErrNotFound", err)
		}
	})
	t.Run("large manifest", func(t *testing.T) {
		r := newRegistry(t, 1<<10)
		r.manifest = r.add(ocispec.MediaTypeImageManifest, bytes.Repeat([]byte(" "), 5<<20)).Digest
		received.Store(0)
		if _, err := e.pull(t, d, r.host()+"/test/image:1", nil); err == nil || received.Load() > 0 {
			t.Errorf("a manifest of 5 MiB: %v, %d bytes received", err, received.Load())
		}
	})
	t.Run("mirror", func(t *testing.T) {
		r := newRegistry(t, 1<<10)
		dir := filepath.Join(e.hostDir, "registry.example")
		text := fmt.Sprintf("server = \"http://127.0.0.1:1\"\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", r.URL)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		name := "registry.example/test/image:1"
		if _, err := e.pull(t, d, name, nil); err != nil {
			t.Fatal(err)
		}
		remove(t, name)
	})
}
