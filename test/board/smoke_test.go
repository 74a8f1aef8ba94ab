//go:build board

package board

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// writer sends the console and the progress to the test's log.
type writer struct{ t *testing.T }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\r\n"))
	return len(p), nil
}

func TestSmoke(t *testing.T) {
	arch := Arch(os.Getenv("BOARD_ARCH"))
	if arch == "" {
		arch = ARM64
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	im, err := Prepare(ctx, Options{Arch: arch, Progress: writer{t}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	vm, err := Boot(ctx, im, VMOptions{Files: []File{{Path: "/etc/board-test", Mode: 0o640, Data: []byte("hello\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := vm.WaitBooted(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("booted in %.1f s", time.Since(start).Seconds())
	must := func(script string) string {
		t.Helper()
		out, err := vm.Shell(ctx, script)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := must("stat -c '%a %u %g' /etc/board-test; cat /etc/board-test"); got != "640 0 0\nhello" {
		t.Errorf("injected file: %q", got)
	}
	must("until ctr version; do sleep 0.5; done")
	t.Logf("containerd answers after %.1f s", time.Since(start).Seconds())
	if got := must("ctr -n k8s.io run --rm --runc-binary crun " + BusyboxImage + " one echo from the container"); got != "from the container" {
		t.Errorf("container printed %q", got)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := vm.Put(ctx, "/root/sub/big", bytes.NewReader(big), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := vm.Get(ctx, "/root/sub/big")
	if err != nil || !bytes.Equal(back, big) {
		t.Errorf("file of %d bytes came back with %d: %v", len(big), len(back), err)
	}
	if err := vm.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
