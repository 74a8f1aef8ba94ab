package podsync

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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
			got, err := readMessage(tc.path)
			if got != tc.want || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %.40q, %v, want %.40q", got, err, tc.want)
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
	if got := new(syncState).messagesOf(t.Context(), p, o); got["1"] != "" {
		t.Errorf("without the policy: %q", got)
	}
	p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	if got := new(syncState).messagesOf(t.Context(), p, o); got["1"] != "no coffee\n" {
		t.Errorf("with the policy: %q", got)
	}
	o.Containers[0].ExitCode = 0
	if got := new(syncState).messagesOf(t.Context(), p, o); got["1"] != "" {
		t.Errorf("of a success: %q", got)
	}
}

// A container that wrote without newlines leaves a log of one line, of any
// size: only its end is read, and only once.
func TestFallbackReadsTheEndOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	piece := "2026-01-02T03:04:05.000000000Z stdout P " + strings.Repeat("x", 16<<10) + "\n"
	w := bufio.NewWriterSize(log, 1<<20)
	for n := 0; n < 64<<20; n += len(piece) {
		_, _ = w.WriteString(piece)
	}
	_, _ = w.WriteString("2026-01-02T03:04:05.000000000Z stdout F the end\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError}}}}
	o := &container.Observed{Containers: []container.Container{{ID: "1", Name: "c", State: container.StateExited, ExitCode: 1, LogPath: path}}}
	f := new(syncState)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text := f.messagesOf(t.Context(), p, o)["1"]
	runtime.ReadMemStats(&after)
	if len(text) != maxFallbackBytes || !strings.HasSuffix(text, "xxxthe end\n") {
		t.Errorf("%d bytes that end in %q", len(text), text[max(0, len(text)-20):])
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("a message of %d bytes took %d KiB of memory", len(text), grown>>10)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again := f.messagesOf(t.Context(), p, o)["1"]; again != text {
		t.Errorf("the log of a container that has exited was read again: %.40q", again)
	}
	o.Containers = nil
	if f.messagesOf(t.Context(), p, o); len(f.messages) != 0 {
		t.Errorf("kept for a container that is gone: %d messages", len(f.messages))
	}
}

// A message that cannot be read now is read again later, and the result of an
// interrupted read is never kept.
func TestFallbackIsBrokenOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError}}}}
	o := &container.Observed{Containers: []container.Container{{ID: "1", Name: "c", State: container.StateExited, ExitCode: 1, LogPath: path}}}
	f := new(syncState)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.messagesOf(ended, p, o); len(got) != 0 {
		t.Errorf("after its context ended: %q", got)
	}
	if got := f.messagesOf(t.Context(), p, o)["1"]; got != "x\n" {
		t.Errorf("then: %q", got)
	}
}

// The part of a termination message beyond the limit occupies the disk only
// while the container runs.
func TestTerminationMessageIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &container.Observed{Containers: []container.Container{{ID: "1", Name: "c", State: container.StateRunning, TerminationMessagePath: path}}}
	f := new(syncState)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if f.messagesOf(t.Context(), &v1.Pod{}, o); size() != 1<<20 {
		t.Errorf("%d bytes while the container runs", size())
	}
	o.Containers[0].State = container.StateExited
	if got := f.messagesOf(t.Context(), &v1.Pod{}, o)["1"]; len(got) != maxMessage {
		t.Errorf("a message of %d bytes", len(got))
	}
	if size() != maxMessage {
		t.Errorf("the file has %d bytes after the end of its container", size())
	}
}

func TestWaitSurvivesClockJumps(t *testing.T) {
	now := time.Now()
	var f syncState
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
// of the second is no longer for that once the first wait is over.
func TestSecondWaitSurvivesAClockSetBack(t *testing.T) {
	now := time.Now()
	first := now.Round(0).AddDate(9, 0, 0)
	f := syncState{next: first, nextMonotonic: now}
	late := now.Add(time.Second)
	if got := f.clock(late); !got.Equal(first) {
		t.Fatalf("the plan is made for %v, want %v", got, first)
	}
	if d := f.schedule(first.Add(30 * time.Second)).Sub(late); d != 30*time.Second {
		t.Errorf("the second is due in %v", d)
	}
}
