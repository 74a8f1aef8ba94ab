package source

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"
)

func TestRelevance(t *testing.T) {
	const folder = "/etc/kubernetes/manifests"
	links := []string{"/data/pods/a.yaml"}
	for _, tt := range []struct {
		name string
		want kind
	}{
		{folder + "/a.yaml", aFile},
		{folder + "/.a.yaml.swp", ignored},
		{folder + "/..data", aTarget},
		{folder, thePath},
		{"/etc/kubernetes", thePath},
		{"/etc", thePath},
		{"/", thePath},
		{"/etc/kubernetes/kubelet.conf", ignored},
		{"/etc/kubernetes/manifests.old", ignored},
		{"/etc/kube", ignored},
		{"/data/pods/a.yaml", aTarget},
		{"/data/pods", aTarget},
		{"/data/pods/b.yaml", ignored},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := relevance(tt.name, folder, links); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		name, message string
		want          int
	}{
		{"short", "ä", 2},
		{"just", strings.Repeat("a", maxMessage), maxMessage},
		{"long", strings.Repeat("a", 10*maxMessage), maxMessage},
		{"within a rune", strings.Repeat("ä", maxMessage), maxMessage - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := clip(tt.message)
			if len(got) != tt.want || !utf8.ValidString(got) {
				t.Errorf("%d bytes, want %d: %q", len(got), tt.want, got)
			}
		})
	}
}

func TestWatcherNotesAreBounded(t *testing.T) {
	w := newWatcher("/x", slog.New(slog.DiscardHandler))
	for i := range 10 * maxNames {
		w.record(fsnotify.Event{Name: "/x/" + string(rune('a'+i)), Op: fsnotify.Write})
	}
	if len(w.notes.names) != maxNames || !w.notes.all || !w.notes.any {
		t.Errorf("%d names, all %v, any %v", len(w.notes.names), w.notes.all, w.notes.any)
	}
}

// TestOverflow covers an overflow of the inotify queue, after which any file
// may have changed.
func TestOverflow(t *testing.T) {
	f, w := idle(t)
	w.inotify.Errors <- fsnotify.ErrEventOverflow
	<-w.wake
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
