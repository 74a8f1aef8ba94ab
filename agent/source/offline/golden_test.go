package offline

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestGolden reads a journal that earlier versions of this package wrote, since
// deployed journals must stay readable. None of its values would be written
// again.
func TestGolden(t *testing.T) {
	golden := filepath.Join("testdata", "v1.journal")
	p, over := everythingPod("a"), aPod("b")
	served := func() *server {
		api := newServer()
		fillServer(api, "1")
		return api
	}
	fill := func(t *testing.T, s *Store, api *server) map[string]string {
		mustAdmit(t, s, p, over)
		must(t, s.Finish(t.Context(), "b", succeeded))
		got, err := everything(t.Context(), s.Reader(api), p)
		must(t, err)
		return got
	}
	dir, scratch := t.TempDir(), t.TempDir()
	var want map[string]string
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Config{Dir: scratch})
		want = fill(t, s, served())
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(golden, content(t, scratch), 0o644))
		}
	})
	data, err := os.ReadFile(golden)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "journal"), data, 0o600))
	log := &lines{}
	s := mustOpen(t, Config{Dir: dir, Log: log.logger()})
	if got := uidsOf(s.Pods()); got != "a b" || s.Pods()[1].Status.Phase != v1.PodSucceeded {
		t.Errorf("pods %s", got)
	}
	api := newServer()
	api.state(false, errLink)
	got, err := everything(t.Context(), s.Reader(api), p)
	must(t, err)
	for kind, value := range want {
		if got[kind] != value {
			t.Errorf("%s is %q, want %q", kind, got[kind], value)
		}
	}
	if text := log.text.String(); strings.Contains(text, "WARN") {
		t.Errorf("log %s", text)
	}
	unchanged(t, s, func() { fill(t, s, served()) })
}
