package podlogs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLast(t *testing.T) {
	const stamp = "2026-01-02T03:04:05.000000000Z "
	piece := stamp + "stdout P " + strings.Repeat("x", 16<<10) + "\n"
	for _, tc := range []struct {
		name, log string
		lines     int64
		limit     int
		want      string
	}{
		{"empty", "", 80, 100, ""},
		{"both streams", stamp + "stdout F a\n" + stamp + "stderr F b\n", 80, 100, "a\nb\n"},
		{"few lines", strings.Repeat(stamp+"stdout F a\n", 10) + stamp + "stdout F b\n", 2, 100, "a\nb\n"},
		{"few bytes", stamp + "stdout F abcdef\n", 80, 4, "def\n"},
		{"not text", stamp + "stdout F a\xff\n", 80, 100, "a\uFFFD\n"},
		{"pieces", strings.Repeat(piece, 100) + stamp + "stdout F end\n", 80, 6, "xxend\n"},
		{"no end yet", strings.Repeat(piece, 100), 80, 6, "xxxxxx"},
		{"one line in one piece", stamp + "stdout F " + strings.Repeat("x", 1<<20) + "end\n", 80, 6, "xxend\n"},
		{"lines behind a long one", stamp + "stdout F " + strings.Repeat("x", 1<<20) + "\n" + stamp + "stderr F end\n", 80, 100, "end\n"},
		{"as a power cut leaves it", strings.Repeat("\x00", 1<<20), 80, 100, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(path, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Last(t.Context(), path, tc.lines, tc.limit)
			if err != nil || got != tc.want {
				t.Errorf("got %.100q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// The search for the last lines of a file ends with its context. There can be
// any number of lines of any length.
func TestTailIsBrokenOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x\n", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := tail(ctx, f, 20, 5, [streams]bool{true, true}); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}
