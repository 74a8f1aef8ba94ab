package board

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPrune(t *testing.T) {
	cache := t.TempDir()
	make := func(dir string, used time.Duration) string {
		t.Helper()
		path := filepath.Join(cache, dir)
		if err := os.MkdirAll(filepath.Join(path, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if used == 0 {
			return path
		}
		f, err := use(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		at := time.Now().Add(-used)
		if err := os.Chtimes(filepath.Join(path, "use"), at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	make("image/arm64-a", 4*time.Hour)
	make("image/arm64-b", 1*time.Hour)
	make("image/arm64-c", 3*time.Hour)
	busy := make("image/arm64-d", 5*time.Hour)
	make("image/arm64-e.new", 0)
	make("image/armv7-a", 9*time.Hour)
	make("image/systemd-arm64-a", 9*time.Hour)
	make("containerd/arm64-old", 0)
	make("containerd/armv7-old", 0)
	now := make("containerd/arm64-now", 0)
	lock, err := use(busy)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	at := time.Now().Add(-5 * time.Hour)
	if err := os.Chtimes(lock.Name(), at, at); err != nil {
		t.Fatal(err)
	}

	if err := prune(cache, Options{Arch: ARM64}, []string{now}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, dir := range []string{"image", "containerd"} {
		entries, err := os.ReadDir(filepath.Join(cache, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, dir+"/"+e.Name())
		}
	}
	want := []string{
		"image/arm64-b", "image/arm64-c", "image/arm64-d", "image/armv7-a", "image/systemd-arm64-a",
		"containerd/arm64-now", "containerd/armv7-old",
	}
	if d := cmp.Diff(want, left); d != "" {
		t.Error(d)
	}
	if err := prune(filepath.Join(cache, "none"), Options{Arch: ARM64}, []string{now}); err != nil {
		t.Errorf("empty cache: %v", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	first, err := lock(t.Context(), dir, newProgress(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no time")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, err := lock(ctx, dir, newProgress(nil)); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	time.AfterFunc(10*time.Millisecond, first)
	second, err := lock(t.Context(), dir, newProgress(nil))
	if err != nil {
		t.Fatal(err)
	}
	second()
}

func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, alive := filepath.Join(os.TempDir(), "board-1"), ""
	if err := os.MkdirAll(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(os.TempDir(), "other-1")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	hold, err := use(dead)
	if err != nil {
		t.Fatal(err)
	}
	_ = hold.Close()
	alive, hold, err = scratch()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dead: false, alive: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
