package native

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/criserver"
)

// TestServe serves the driver as CRI for other programs until SIGTERM:
//
//	TINYLET_RUNTIME_SERVE     the socket
//	TINYLET_RUNTIME_REGISTRY  an archive with the images of all registries
func TestServe(t *testing.T) {
	socket := os.Getenv("TINYLET_RUNTIME_SERVE")
	if socket == "" {
		t.Skip("TINYLET_RUNTIME_SERVE names no socket to serve CRI on")
	}
	e := newEnv(t)
	if path := os.Getenv("TINYLET_RUNTIME_REGISTRY"); path != "" {
		e.hostDir = t.TempDir()
		server := serveArchive(t, path)
		text := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server, server)
		dir := filepath.Join(e.hostDir, "_default")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d := e.newDriver(t)
	forward, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := criserver.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := criserver.New(d, forward)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	defer signal.Stop(stop)
	<-stop
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// serveArchive serves the images of an OCI image layout under their names, whatever the
// registry. It returns its URL.
func serveArchive(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	blobs := map[digest.Digest][]byte{}
	var index ocispec.Index
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "index.json" {
			if err := json.Unmarshal(data, &index); err != nil {
				t.Fatal(err)
			}
		}
		blobs[digest.FromBytes(data)] = data
	}
	names := map[string]ocispec.Descriptor{} // by repository without its registry, and tag
	types := map[digest.Digest]string{}
	for _, d := range index.Manifests {
		name := d.Annotations["io.containerd.image.name"]
		_, name, _ = strings.Cut(name, "/")
		names[name], types[d.Digest] = d, d.MediaType
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, "/v2/")
		repository, ref, isManifest := strings.Cut(rest, "/manifests/")
		if !isManifest {
			_, ref, _ = strings.Cut(rest, "/blobs/")
		}
		d := digest.Digest(ref)
		if named, ok := names[repository+":"+ref]; ok {
			d = named.Digest
		}
		data, ok := blobs[d]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Docker-Content-Digest", d.String())
		if types[d] != "" {
			w.Header().Set("Content-Type", types[d])
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String()
}
