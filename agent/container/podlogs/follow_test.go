package podlogs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// following is a Read in its own goroutine, with what it printed. Inotify
// has no virtual time, so these tests wait for real events.
type followed struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	done   chan error
}

func startFollowing(t *testing.T, src Source, o Options) *followed {
	t.Helper()
	o.Follow = true
	in, out := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	f := &followed{lines: bufio.NewScanner(in), cancel: cancel, done: make(chan error, 1)}
	go func() {
		_, err := Read(ctx, src, o, Output{Stdout: out})
		out.CloseWithError(io.EOF)
		f.done <- err
	}()
	t.Cleanup(func() { cancel(); in.Close() })
	return f
}

func (f *followed) want(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !f.lines.Scan() {
			t.Fatalf("output ended before %q", want)
		}
		if got := f.lines.Text(); got != want {
			t.Fatalf("got line %q, want %q", got, want)
		}
	}
}

func (f *followed) end(t *testing.T) error {
	t.Helper()
	if f.lines.Scan() {
		t.Fatalf("more output: %q", f.lines.Text())
	}
	return <-f.done
}

func TestFollowGrowth(t *testing.T) {
	path := file(t, t1+" stdout F zero\n"+t1+" stdout F one\n")
	f := startFollowing(t, Source{Path: path}, Options{Tail: n(1)})
	f.want(t, "one")
	add(t, path, t2+" stdout F tw")
	add(t, path, "o\n"+t2+" stdout F three\n")
	f.want(t, "two", "three")
	f.cancel()
	if err := f.end(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v", err)
	}
}

func TestFollowWaitsForTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	f := startFollowing(t, Source{Path: path}, Options{})
	add(t, path, t1+" stdout F one\n")
	f.want(t, "one")
}

// The directories of a pod that has never started are created one by one, with
// others next to them, and may be replaced.
func TestFollowWaitsForTheFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "pods", "default_web_1", "nginx")
	f := startFollowing(t, Source{Path: pathOf(dir, 0), FollowRestarts: true, WaitForDir: true}, Options{})
	for _, folder := range []string{"other", "pods", "pods/default_other_2", "pods/default_web_1", "pods/default_web_1/side"} {
		time.Sleep(20 * time.Millisecond)
		if err := os.Mkdir(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	if err := os.RemoveAll(filepath.Join(root, "pods", "default_web_1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	add(t, pathOf(dir, 3), t1+" stdout F one\n")
	f.want(t, "one")
	add(t, pathOf(dir, 4), t2+" stdout F two\n")
	f.want(t, "two")
}

// A directory that is created during the search for it is watched too.
func TestFollowFolderComesMeanwhile(t *testing.T) {
	for range 200 {
		dir := filepath.Join(t.TempDir(), "default_web_1", "nginx")
		f := startFollowing(t, Source{Path: pathOf(dir, 0), FollowRestarts: true, WaitForDir: true}, Options{})
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		add(t, pathOf(dir, 0), t1+" stdout F one\n")
		f.want(t, "one")
		add(t, pathOf(dir, 1), t2+" stdout F two\n")
		f.want(t, "two")
		f.cancel()
	}
}

func TestWaitingIsCancelled(t *testing.T) {
	f := startFollowing(t, Source{Path: filepath.Join(t.TempDir(), "none", "none", "0.log"), WaitForDir: true}, Options{})
	f.cancel()
	if err := f.end(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v", err)
	}
}

// A rotation for which the runtime did not reopen the log is undone.
func TestFollowUndoneRotation(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	f := startFollowing(t, Source{Path: path, FollowRestarts: true}, Options{})
	f.want(t, "one")
	rotated := path + ".20260102-030405"
	if err := os.Rename(path, rotated); err != nil {
		t.Fatal(err)
	}
	add(t, rotated, t1+" stdout F two\n")
	if err := os.Rename(rotated, path); err != nil {
		t.Fatal(err)
	}
	add(t, path, t2+" stdout F three\n")
	f.want(t, "two", "three")
}

// Compressing and removing rotated files does not disturb a reader.
func TestFollowManyRotations(t *testing.T) {
	path := file(t, "")
	f := startFollowing(t, Source{Path: path}, Options{})
	for i := range 5 {
		line := "line " + strconv.Itoa(i)
		add(t, path, t1+" stdout F "+line+"\n")
		f.want(t, line)
		rotated := path + ".20260102-03040" + strconv.Itoa(i)
		if err := os.Rename(path, rotated); err != nil {
			t.Fatal(err)
		}
		add(t, path, "")
		add(t, rotated+".gz", "compressed")
		if err := os.Remove(rotated); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFollowRotation(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	f := startFollowing(t, Source{Path: path}, Options{})
	f.want(t, "one")
	rotated := path + ".20260102-030405"
	if err := os.Rename(path, rotated); err != nil {
		t.Fatal(err)
	}
	add(t, rotated, t1+" stdout F two\n"+t1+" stdout P thr\n") // the runtime has not reopened it yet
	add(t, path, t2+" stdout F ee\n")
	add(t, path, t2+" stdout F four\n")
	f.want(t, "two", "three", "four")
}

func TestFollowTruncation(t *testing.T) {
	path := file(t, t1+" stdout F one, a longer line\n")
	f := startFollowing(t, Source{Path: path}, Options{})
	f.want(t, "one, a longer line")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	add(t, path, t1+" stdout F two\n")
	f.want(t, "two")
}

func TestFollowIntoTheNextContainer(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	f := startFollowing(t, Source{Path: path, FollowRestarts: true}, Options{})
	f.want(t, "one")
	add(t, path, t1+" stdout P unfinished\n")
	add(t, pathOf(filepath.Dir(path), 1), t1+" stdout F two\n")
	add(t, pathOf(filepath.Dir(path), 2), t1+" stdout F three\n")
	f.want(t, "unfinished", "two", "three")
}

func TestFollowStaysWithTheContainer(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	ended := make(chan struct{})
	f := startFollowing(t, Source{Path: path, Ended: ended}, Options{})
	f.want(t, "one")
	add(t, pathOf(filepath.Dir(path), 1), t1+" stdout F other\n")
	add(t, path, t1+" stdout F two\n")
	close(ended)
	f.want(t, "two")
	if err := f.end(t); err != nil {
		t.Errorf("Read = %v", err)
	}
}

func TestFollowEndsWithTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := pathOf(dir, 0)
	add(t, path, t1+" stdout F one\n")
	f := startFollowing(t, Source{Path: path, FollowRestarts: true}, Options{})
	f.want(t, "one")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.end(t); err != nil {
		t.Errorf("Read = %v", err)
	}
}

func TestFollowShowsAnUnfinishedLine(t *testing.T) {
	// A prompt is written without a newline, and must be seen.
	path := file(t, t1+" stdout P login: \n")
	in, out := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan error, 1)
	go func() {
		_, err := Read(ctx, Source{Path: path}, Options{Follow: true}, Output{Stdout: out})
		done <- err
	}()
	got := make([]byte, len("login: "))
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "login: " {
		t.Errorf("read %q, %v", got, err)
	}
	cancel()
	<-done
}

func TestPreviousAndList(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"default_web_123/nginx/0.log", "default_web_123/nginx/2.log", "default_web_123/nginx/2.log.20260102-030405",
		"default_web_123/side/0.log", "stray/x/0.log", "a_b_c_d/x/0.log", "default_empty_9/x/none",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		add(t, path, t1+" stdout F x\n")
	}
	logs, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(logs) != 2 || logs[0].Container != "nginx" || logs[1].Container != "side" {
		t.Fatalf("List = %+v", logs)
	}
	if l := logs[0]; l.Namespace != "default" || l.Pod != "web" || l.UID != "123" || filepath.Base(l.Path) != "2.log" {
		t.Errorf("List = %+v", l)
	}
	if got, err := PreviousPath(logs[0].Path); err != nil || filepath.Base(got) != "0.log" {
		t.Errorf("Previous = %q, %v", got, err)
	}
	for _, path := range []string{logs[1].Path, "/nowhere/x", "/nowhere/5.log"} {
		if _, err := PreviousPath(path); !errors.Is(err, ErrNoPrevious) {
			t.Errorf("Previous(%q): %v", path, err)
		}
	}
	if _, err := List(filepath.Join(root, "none")); err == nil {
		t.Error("List of a missing folder succeeded")
	}
}

func add(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func newTime(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// The container ends just after a rotation, and the watch has reported only the write to
// the old file.
func TestFollowEndsAfterRotation(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	ended := make(chan struct{})
	var out bytes.Buffer
	r := &reader{src: Source{Path: path, Ended: ended}, selected: [streams]bool{true, true}, print: newPrinter(&Options{}, Output{Stdout: &out})}
	defer r.close()
	if err := r.openFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := filewatch.NewPath(filepath.Dir(path))
	first, err := at.Stat()
	if err != nil {
		t.Fatal(err)
	}
	err = r.followFrom(t.Context(), at, first, func() (filewatch.Changes, error) {
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		add(t, path, t2+" stdout F two\n")
		close(ended)
		return filewatch.Changes{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.print.flush(); err != nil || out.String() != "one\ntwo\n" {
		t.Errorf("output %q, error %v", out.String(), err)
	}
}

// A line that was ended early does not end again with its container.
func TestUnfinishedLineEndsOnce(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&Options{}, Output{Stdout: &out})
	for _, do := range []func() error{
		func() error { return p.piece(stdout, time.Time{}, []byte("abc"), false) },
		func() error { return p.piece(stderr, time.Time{}, []byte("x"), true) },
		p.flush, p.endUnfinished, p.flush,
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "abc\nx\n" {
		t.Errorf("output %q", out.String())
	}
}
