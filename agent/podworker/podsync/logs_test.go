package podsync

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
)

func TestLogsOfAPod(t *testing.T) {
	dir := t.TempDir()
	s := &Syncer{Config: Config{LogLinks: filepath.Join(dir, "links")}}
	n := &criconfig.Node{PodLogsDir: filepath.Join(dir, "pods")}
	l := s.logsOf(pod.Ref{UID: "u1", Namespace: "default", Name: "web"}, n)
	other := s.logsOf(pod.Ref{UID: "u2", Namespace: "default", Name: "web"}, n)
	for _, x := range []logs{l, other} {
		if err := x.prepare("c"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(x.path("c", 3), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is idempotent
			if err := x.link("c", "id-"+string(x.ref.UID), 3); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct{ count, want int }{{0, 4}, {3, 4}, {4, 4}, {9, 9}} {
		if got := l.nextCount("c", tc.count); got != tc.want {
			t.Errorf("count %d becomes %d, want %d", tc.count, got, tc.want)
		}
	}
	if got := l.nextCount("new", 2); got != 2 {
		t.Errorf("of a container without logs: %d", got)
	}
	// One container's log goes with its rotated pieces and its link, and no other.
	for _, name := range []string{"7.log", "7.log.20260102-030405.gz", "70.log"} {
		if err := os.WriteFile(filepath.Join(l.dir, "c", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.link("c", "id7", 7); err != nil {
		t.Fatal(err)
	}
	if err := l.drop("c", "another", 7, true); err != nil {
		t.Fatal(err)
	}
	if got, _ := filepath.Glob(filepath.Join(l.dir, "c", "*")); len(got) != 4 {
		t.Errorf("logs after one was dropped that another container has: %v", got)
	}
	for range 2 { // it is idempotent
		if err := l.drop("c", "id7", 7, false); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := filepath.Glob(filepath.Join(l.dir, "c", "*")); len(got) != 2 {
		t.Errorf("logs after one was dropped: %v", got)
	}
	if got, _ := filepath.Glob(filepath.Join(s.LogLinks, "*")); len(got) != 2 {
		t.Errorf("links after one was dropped: %v", got)
	}
	// A leftover is known by its UID alone.
	if err := s.logsOf(pod.Ref{UID: "u1"}, n).remove(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(s.LogLinks, "web_default_c-id-u2.log"), other.dir}
	if len(left) != 2 || left[0] != want[0] || left[1] != want[1] {
		t.Errorf("left: %v, want %v", left, want)
	}
	if err := s.logsOf(pod.Ref{UID: "u1"}, n).remove(); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
}

func TestTrim(t *testing.T) {
	root, links := t.TempDir(), t.TempDir()
	l := logs{dir: filepath.Join(root, "ns_pod_uid"), links: links}
	if err := l.trim("main", 3); err != nil {
		t.Fatalf("without any log: %v", err)
	}
	if err := l.prepare("main"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "1.log", "1.log.20260102-150405", "2.log", "notes"} {
		if err := os.WriteFile(filepath.Join(l.dir, "main", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := l.link("main", "id"+strconv.Itoa(i), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.trim("main", 3); err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Join(l.dir, "main")); got != "2.log notes" {
		t.Errorf("left of the logs: %s", got)
	}
	if got := strings.Count(names(t, links), "main"); got != 1 {
		t.Errorf("left of the links: %s", names(t, links))
	}
}

// names are those in a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
