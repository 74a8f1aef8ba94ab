package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/event"
)

// idle is a File that has read 30 manifests, and its watcher.
func idle(tb testing.TB) (*File, *watcher) {
	tb.Helper()
	folder := tb.TempDir()
	for i := range 30 {
		text := fmt.Sprintf(podText, fmt.Sprintf("pod%d", i), "1")
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("pod%d.yaml", i)), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	f, err := NewFile(FileConfig{Path: folder, NodeName: "n", Log: log, Events: event.NewRecorder(log)})
	if err != nil {
		tb.Fatal(err)
	}
	w := newWatcher(f.path, log)
	tb.Cleanup(w.close)
	f.started = time.Now().Add(time.Hour) // the files are old
	if r := f.look(w); !r.changed || !r.watched {
		tb.Fatalf("first look: %+v", r)
	}
	if pods := f.pods(); len(pods) != 30 {
		tb.Fatalf("%d pods", len(pods))
	}
	f.look(w)
	return f, w
}

// TestLookWaitsForAWriter looks at a folder in which one file grows and
// another one is finished.
func TestLookWaitsForAWriter(t *testing.T) {
	f, w := idle(t)
	folder := f.path
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (result, int) {
		r := f.look(w)
		return r, len(f.pods())
	}
	growing := fmt.Sprintf(podText, "growing", "1")
	write("growing.yaml", growing[:20])
	write("finished.yaml", fmt.Sprintf(podText, "finished", "1"))
	if r, n := look(); !r.unsettled || n != 30 {
		t.Fatalf("first look: %+v, %d pods", r, n)
	}
	write("growing.yaml", growing[:40])
	if r, n := look(); !r.unsettled || !r.changed || n != 31 {
		t.Fatalf("look at a growing and a finished file: %+v, %d pods", r, n)
	}
	write("growing.yaml", growing[:60])
	if r, n := look(); !r.unsettled || r.changed || n != 31 {
		t.Fatalf("look at a growing file: %+v, %d pods", r, n)
	}
	write("growing.yaml", growing)
	look()
	if r, n := look(); r.unsettled || !r.changed || n != 32 {
		t.Fatalf("look at a file that is the same as before: %+v, %d pods", r, n)
	}
	if events := f.events.Recent(); len(events) != 0 {
		t.Errorf("events %v", events)
	}
}

func TestIdleLookAllocatesNothing(t *testing.T) {
	f, w := idle(t)
	allocs := testing.AllocsPerRun(100, func() {
		if r := f.look(w); r != (result{watched: true}) {
			t.Fatalf("look: %+v", r)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations in a look at 30 unchanged files", allocs)
	}
}

func BenchmarkIdleLook(b *testing.B) {
	f, w := idle(b)
	b.ReportAllocs()
	for b.Loop() {
		f.look(w)
	}
}
