package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// idle is a File that has read 30 manifests, and its watcher.
func idle(tb testing.TB) (*File, *filewatch.Watch) {
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
	w := f.newWatch()
	tb.Cleanup(w.Close)
	f.started = time.Now().Add(time.Hour) // the files are old
	if r := f.scan(w); !r.changed || !r.watched {
		tb.Fatalf("first look: %+v", r)
	}
	if pods := f.pods(); len(pods) != 30 {
		tb.Fatalf("%d pods", len(pods))
	}
	f.scan(w)
	return f, w
}

// told waits until inotify has told of all that was written so far: it tells
// in order, of the last manifest's mode at last, and all Watches at the same time.
// That manifest counts as changed.
func awaitEvent(t *testing.T, f *File) {
	t.Helper()
	path := f.entries[29].path
	w := filewatch.New(filewatch.Config{Events: filewatch.Attributes})
	defer w.Close()
	if _, err := w.Set(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Changed():
	case <-time.After(20 * time.Second):
		t.Fatal("inotify reports no event")
	}
}

// TestLookWaitsForAWriter scans a directory in which one file grows and another
// one is complete.
func TestLookWaitsForAWriter(t *testing.T) {
	f, w := idle(t)
	folder := f.path
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, f)
	}
	look := func() (result, int) {
		r := f.scan(w)
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

// TestLookDoubtsBadContent writes a file in two steps with a pause between
// them, first a short and then a long one.
func TestLookDoubtsBadContent(t *testing.T) {
	f, w := idle(t)
	e := f.entries[0]
	before := e.pods[0]
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(e.path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, f)
	}
	settle := func() result {
		f.scan(w)
		return f.scan(w)
	}
	events := func(want int) {
		t.Helper()
		if got := f.events.Recent(); len(got) != want {
			t.Fatalf("events %v, want %d", got, want)
		}
		if e.pods[0] != before {
			t.Fatal("the pod did not stay")
		}
	}
	good := fmt.Sprintf(podText, "pod0", "2")

	write("")
	if r := settle(); !r.unsettled || r.changed {
		t.Fatalf("look at an empty file: %+v", r)
	}
	events(0)
	write(good[:50])
	if r := settle(); !r.unsettled || r.changed {
		t.Fatalf("look at half a file: %+v", r)
	}
	events(0)
	e.since = e.since.Add(-doubtTime)
	if r := f.scan(w); r.unsettled || r.changed {
		t.Fatalf("look at half a file after a pause: %+v", r)
	}
	events(1)
	settle()
	events(1)
	write(good)
	if r := settle(); r.unsettled || !r.changed || e.pods[0] == before {
		t.Fatalf("look at the whole file: %+v", r)
	}
}

func TestNextLook(t *testing.T) {
	idle := result{watched: true}
	bad := result{watched: true, retry: true}
	failed := result{failed: true}
	writing := result{watched: true, retry: true, unsettled: true}
	const s = time.Second
	for _, tt := range []struct {
		name   string
		rescan time.Duration
		sent   bool
		looks  []result
		want   []time.Duration // at least, and up to a tenth more
	}{
		{"idle", 2 * time.Minute, true, []result{idle, idle}, []time.Duration{120 * s, 120 * s}},
		{"not watched", 2 * time.Minute, true, []result{{}, idle}, []time.Duration{10 * s, 120 * s}},
		{"not watched, with a fast rescan", 3 * s, true, []result{{}}, []time.Duration{3 * s}},
		{"an unreadable file", 2 * time.Minute, true, []result{bad, bad, writing, bad, bad, bad, bad, bad, idle, bad},
			[]time.Duration{5 * s, 10 * s, settleTime, 20 * s, 40 * s, 80 * s, 120 * s, 120 * s, 120 * s, 5 * s}},
		{"an unreadable file at start", 2 * time.Minute, false, []result{bad, bad, bad}, []time.Duration{5 * s, 5 * s, 5 * s}},
		{"an unreadable folder", 2 * time.Minute, true, []result{failed, failed, failed}, []time.Duration{5 * s, 10 * s, 10 * s}},
		{"an unreadable file with a fast rescan", s, true, []result{bad, bad}, []time.Duration{s, s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &File{rescan: tt.rescan, sent: tt.sent}
			for i, r := range tt.looks {
				if got := f.next(r); got < tt.want[i] || got > tt.want[i]+tt.want[i]/10 {
					t.Errorf("look %d: next in %s, want %s", i, got, tt.want[i])
				}
			}
		})
	}
}

func TestLeadsToFile(t *testing.T) {
	folder := t.TempDir()
	link := func(name, target string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path string
		want       bool
	}{
		{"a link", link("one", "file"), true},
		{"a link to a link", link("two", "one"), true},
		{"a link to a device", link("null", "/dev/null"), false},
		{"a link to a folder", link("root", "/"), false},
		{"a link to nowhere", link("lost", "nowhere"), false},
		{"a link to itself", link("self", "self"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := leadsToFile(tt.path); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestIdleLookAllocatesNothing(t *testing.T) {
	f, w := idle(t)
	allocs := testing.AllocsPerRun(100, func() {
		if r := f.scan(w); r != (result{watched: true}) {
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
		f.scan(w)
	}
}
