package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// TestNamesThatCount changes entries of the directory. Only a manifest and the
// directories of a volume count.
func TestNamesThatCount(t *testing.T) {
	for name, want := range map[string]int{"pod3.yaml": 2, ".pod3.yaml.swp": 1, "..data": 30, "new.yaml": 1} {
		t.Run(name, func(t *testing.T) {
			f, w := idle(t)
			if err := os.WriteFile(filepath.Join(f.path, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			awaitEvent(t, f) // of another manifest
			changes, err := w.Take()
			if err != nil {
				t.Fatal(err)
			}
			if _, named := changes.Names[filepath.Join(f.path, name)]; named != (name[:2] != ".p") {
				t.Errorf("changes %+v", changes)
			}
			f.mark(changes)
			got := 0
			for _, e := range f.entries {
				if e.touched {
					got++
				}
			}
			if got != want {
				t.Errorf("%d manifests count as changed, want %d", got, want)
			}
		})
	}
}

// TestLostEvents covers an overflow of the inotify queue, after which any file
// may have changed.
func TestLostEvents(t *testing.T) {
	f, w := idle(t)
	f.mark(filewatch.Changes{Any: true, All: true})
	path := f.entries[0].path
	before := f.pods()[0].UID
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: PodList\nitems: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := f.scan(w); !r.unsettled {
		t.Errorf("look: %+v", r)
	}
	for _, e := range f.entries {
		if !e.pending {
			t.Errorf("%s is not read again", e.path)
		}
	}
	for r := (result{unsettled: true}); r.unsettled; {
		r = f.scan(w)
	}
	if pods := f.pods(); len(pods) != 29 || pods[0].UID == before {
		t.Errorf("%d pods", len(pods))
	}
}
