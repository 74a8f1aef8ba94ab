package preload

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// TestOverContainerd imports into a real containerd, whose socket
// TINYLET_RUNTIME_ENDPOINT names: images in each form, of a size that takes some
// messages, and again after they were removed.
func TestOverContainerd(t *testing.T) {
	endpoint := os.Getenv("TINYLET_RUNTIME_ENDPOINT")
	if endpoint == "" {
		t.Skip("TINYLET_RUNTIME_ENDPOINT names no containerd to import into")
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := containerd.New(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	driver, err := cri.New(cri.Config{RuntimeEndpoint: endpoint, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()

	seed := strconv.FormatInt(time.Now().UnixNano(), 36)
	host := platforms.DefaultSpec()
	shelf := &shelf{T: t, dir: filepath.Join(t.TempDir(), "images"), state: filepath.Join(t.TempDir(), "journal"), events: event.NewRecorder(log), log: log}
	names := make(map[string]made)
	for _, form := range []string{"oci.tar", "index.tar.gz", "docker.tgz"} {
		m := makeLarge(t, host, seed+form)
		name := "localhost/preload-" + strings.ReplaceAll(form, ".", "-") + ":" + seed
		names[name] = m
		var data []byte
		switch form {
		case "oci.tar":
			data = ociArchive(t, m, name)
		case "docker.tgz":
			data = zip(t, dockerArchive(t, m, name))
		case "index.tar.gz":
			index := asJSON(t, indexOf(on(m.descriptor(), host), on(describe(ocispec.MediaTypeImageManifest, []byte("absent")), other)))
			data = zip(t, pack(t, append(m.items(), blobItem(index), indexItem(t, named(describe(ocispec.MediaTypeImageIndex, index), name)))))
		}
		shelf.put(form, data)
	}
	p, err := New(Config{
		Dir: shelf.dir, StateFile: shelf.state, Importer: store, Images: driver,
		Platform: host, Events: shelf.events, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := shelf.run(p)
	defer stop()
	for round := range 2 {
		for name, m := range names {
			if !p.Wait(t.Context(), name) {
				t.Fatalf("%q is not known; %v", name, shelf.failures())
			}
			img, err := driver.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: name})
			if err != nil || img == nil {
				t.Fatalf("%q is not there: %v; %v", name, err, shelf.failures())
			}
			if img.GetId() != digest.FromBytes(m.config).String() || len(img.GetRepoTags()) != 1 || len(img.GetRepoDigests()) != 1 || img.GetSize() == 0 {
				t.Errorf("%q is %v", name, img)
			}
			byID, err := driver.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: digest.FromBytes(m.config).String()})
			if err != nil || byID.GetId() != img.GetId() {
				t.Errorf("%q by its ID is %v, %v", name, byID, err)
			}
			shelf.settled(p)
			if err := driver.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: img.GetId()}); err != nil {
				t.Fatal(err)
			}
			if img, err := driver.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: name}); img != nil || err != nil {
				t.Errorf("after its removal %q is %v, %v", name, img, err)
			}
		}
		p.mu.Lock()
		for _, f := range p.archives {
			f.lastAttempt = f.lastAttempt.Add(-minRetryInterval) // the second round need not wait
		}
		p.mu.Unlock()
		if f := shelf.failures(); len(f) > 0 {
			t.Fatalf("round %d: %v", round, f)
		}
	}
}

// makeLarge is an image with one layer of a few megabytes, a real tar.
func makeLarge(t *testing.T, host ocispec.Platform, seed string) made {
	t.Helper()
	layer := pack(t, []item{{name: "hello", data: []byte(seed)}, {name: "large", data: bytes.Repeat([]byte(seed), 200_000)}})
	return made{layers: [][]byte{layer}}.again(t, host)
}
