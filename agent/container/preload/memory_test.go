package preload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/opencontainers/go-digest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// drain is a store that discards everything.
type drain struct{ bytes int64 }

func (*drain) Protect(context.Context) error { return nil }
func (*drain) Release(context.Context) error { return nil }

func (d *drain) Put(_ context.Context, b container.Blob, r io.Reader) error {
	h := digest.SHA256.Digester()
	n, err := io.CopyBuffer(struct{ io.Writer }{h.Hash()}, r, make([]byte, 64<<10))
	if err != nil {
		return err
	}
	d.bytes += n
	if got := h.Digest(); got != b.Digest {
		return fmt.Errorf("%w: it is %s", container.ErrCorrupt, got)
	}
	return nil
}

func (*drain) Tag(context.Context, string, container.Blob) error { return nil }

func (*drain) ImageStatus(context.Context, *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	return &runtimeapi.Image{Id: "x"}, nil
}

// TestMemory shows that an import allocates much less than the size of the
// layers.
func TestMemory(t *testing.T) {
	const size, limit = 32 << 20, 4 << 20
	m := made{layers: [][]byte{bytes.Repeat([]byte("0123456789abcdef"), size/16)}}.again(t, board)
	for name, pack := range map[string]func() []byte{
		"oci.tar":    func() []byte { return ociArchive(t, m, "app:1") },
		"docker.tgz": func() []byte { return zip(t, dockerArchive(t, m, "app:1")) },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newShelf(t), &drain{}
			s.put(name, pack())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := New(Config{
				Dir: s.dir, StateFile: s.state, Importer: d, Images: d,
				Platform: board, Events: s.events, Log: s.log,
			})
			if err != nil {
				t.Fatal(err)
			}
			stop := s.run(p)
			known := s.wait(p, "app:1")
			stop()
			runtime.ReadMemStats(&after)
			if !known || d.bytes < size || len(s.failures()) > 0 {
				t.Fatalf("%d bytes were imported; %v", d.bytes, s.failures())
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > limit {
				t.Errorf("%d bytes were allocated for %d", got, size)
			}
		})
	}
}
