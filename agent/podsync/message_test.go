package podsync

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func TestReadMessage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "of the host")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, path, want string }{
		{"plain", write("plain", "out of coffee\n"), "out of coffee\n"},
		{"long", write("long", strings.Repeat("x", 10_000)), strings.Repeat("x", 4096)},
		{"not text", write("binary", "a\xff\xfeb"), "a\uFFFDb"},
		{"absent", filepath.Join(dir, "absent"), ""},
		{"a link out", link, ""},
		{"a pipe that nobody writes", fifo, ""},
		{"a folder", dir, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := readMessage(tc.path); got != tc.want {
				t.Errorf("got %.40q, want %.40q", got, tc.want)
			}
		})
	}
}

func TestMessageFallsBackToTheLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(log, []byte("2026-01-02T03:04:05.6Z stderr F no coffee\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	o := &container.Observed{Containers: []container.Container{{ID: "1", Name: "c", State: container.StateExited, ExitCode: 1, LogPath: log}}}
	if got := messagesOf(p, o); got["1"] != "" {
		t.Errorf("without the policy: %q", got)
	}
	p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	if got := messagesOf(p, o); got["1"] != "no coffee\n" {
		t.Errorf("with the policy: %q", got)
	}
	o.Containers[0].ExitCode = 0
	if got := messagesOf(p, o); got["1"] != "" {
		t.Errorf("of a success: %q", got)
	}
}

func TestWaitSurvivesClockJumps(t *testing.T) {
	now := time.Now()
	var f facts
	f.clock(now)
	next := now.Add(10 * time.Second).Round(0) // a wall time, as plans give it
	due := f.schedule(next)
	if d := due.Sub(now); d != 10*time.Second {
		t.Errorf("due in %v", d)
	}
	// Not due yet: the plan sees the wall clock.
	early := now.Add(time.Second)
	if got := f.clock(early); !got.Equal(early) {
		t.Errorf("before the wait is over: %v", got)
	}
	if got := f.clock(now.Add(11 * time.Second)); got.Before(next) {
		t.Errorf("after the wait: %v is before %v", got, next)
	}
	f.schedule(time.Time{})
	if got := f.clock(early); !got.Equal(early) {
		t.Errorf("without a wait: %v", got)
	}
}

// A clock that was years ahead is set back while two containers wait: the wait
// of the second is no longer for it once the first has been waited for.
func TestSecondWaitSurvivesAClockSetBack(t *testing.T) {
	now := time.Now()
	first := now.Round(0).AddDate(9, 0, 0)
	f := facts{next: first, due: now}
	late := now.Add(time.Second)
	if got := f.clock(late); !got.Equal(first) {
		t.Fatalf("the plan is made for %v, want %v", got, first)
	}
	if d := f.schedule(first.Add(30 * time.Second)).Sub(late); d != 30*time.Second {
		t.Errorf("the second is due in %v", d)
	}
}
