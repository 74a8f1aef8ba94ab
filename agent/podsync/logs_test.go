package podsync

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/agent/criconfig"
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
	for range 2 { // it is idempotent
		if err := l.drop("c", "id7", 7); err != nil {
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
