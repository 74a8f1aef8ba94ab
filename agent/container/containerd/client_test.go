package containerd

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tinylet/tinylet/agent/container"
)

// TestOtherRuntime checks the errors of a runtime without containerd's native API, such
// as CRI-O.
func TestOtherRuntime(t *testing.T) {
	endpoint := listen(t, grpc.NewServer())
	for name, err := range everyCall(t, endpoint) {
		if !errors.Is(err, container.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// everyCall makes each call that the agent makes, and returns their errors.
func everyCall(t *testing.T, endpoint string) map[string]error {
	t.Helper()
	store, tasks := newStore(t, endpoint), newTasks(t, endpoint)
	data := []byte("x")
	_, ended := tasks.Ended(t.Context(), "id")
	_, orphans := tasks.RemoveOrphans(t.Context(), "u")
	return map[string]error{
		"Protect": store.Protect(t.Context()),
		"Put":     store.Put(t.Context(), blobOf(data), bytes.NewReader(data)),
		"Tag":     store.Tag(t.Context(), "a:1", blobOf(data)),
		"Release": store.Release(t.Context()),
		"Ended":   ended, "RemoveOrphans": orphans,
	}
}

// garbage is a codec whose messages cannot be decoded.
type garbage struct{ encoding.CodecV2 }

func (garbage) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer{0x0a, 0xff}}, nil
}

// TestGarbage checks that responses that are no protobuf messages are errors.
func TestGarbage(t *testing.T) {
	endpoint := listen(t, grpc.NewServer(
		grpc.ForceServerCodecV2(garbage{encoding.GetCodecV2("proto")}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return stream.SendMsg(&emptypb.Empty{}) }),
	))
	for name, err := range everyCall(t, endpoint) {
		if err == nil {
			t.Errorf("%s did not fail", name)
		}
	}
}

// TestIdle checks that a client that is not in use has no connection and no goroutine.
func TestIdle(t *testing.T) {
	srv, endpoint := serve(t)
	before := runtime.NumGoroutine()
	store, tasks := newStore(t, endpoint), newTasks(t, endpoint)
	if n := runtime.NumGoroutine(); n > before || len(srv.calls) > 0 {
		t.Errorf("%d goroutines and the calls %q before the first use", n-before, srv.calls)
	}
	if err := errors.Join(store.Protect(t.Context()), store.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.Ended(t.Context(), "id"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 64<<10)
			t.Fatalf("%d goroutines after the last use:\n%s", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
		}
	}
}
