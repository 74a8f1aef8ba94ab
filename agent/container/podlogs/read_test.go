package podlogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const (
	t1 = "2026-01-02T03:04:05.000000001Z"
	t2 = "2026-01-02T03:04:06.5Z"
	t3 = "2026-01-02T04:04:07+01:00"
)

func TestRead(t *testing.T) {
	three := t1 + " stdout F one\n" + t2 + " stderr F two\n" + t3 + " stdout F three\n"
	tests := []struct {
		name    string
		file    string
		o       Options
		want    string
		damaged int64
	}{
		{name: "empty"},
		{name: "lines of both streams", file: three, want: "one\ntwo\nthree\n"},
		{name: "only stdout", file: three, o: Options{Stream: v1.LogStreamStdout}, want: "one\nthree\n"},
		{name: "only stderr", file: three, o: Options{Stream: v1.LogStreamStderr}, want: "two\n"},
		{name: "empty line", file: t1 + " stdout F \n" + t1 + " stdout F\n", want: "\n\n"},
		{name: "more tags", file: t1 + " stdout F:x:y one\n", want: "one\n"},
		{
			name: "timestamps in one width and zone", file: three, o: Options{Timestamps: true},
			want: "2026-01-02T03:04:05.000000001Z one\n2026-01-02T03:04:06.500000000Z two\n2026-01-02T03:04:07.000000000Z three\n",
		},
		{
			name: "pieces are joined with one timestamp",
			file: t1 + " stdout P on\n" + t2 + " stdout P e\n" + t2 + " stdout F !\n",
			o:    Options{Timestamps: true}, want: "2026-01-02T03:04:05.000000001Z one!\n",
		},
		{
			name: "a line in the middle is not interrupted",
			file: t1 + " stdout P on\n" + t1 + " stderr F two\n" + t1 + " stderr P thr\n" + t2 + " stdout F e\n" + t2 + " stderr F ee\n",
			want: "one\ntwo\nthree\n",
		},
		{
			name: "a line that never ends",
			file: t1 + " stdout P on\n" + t1 + " stderr F two\n",
			want: "on\ntwo\n",
		},
		{name: "since", file: three, o: Options{Since: at(t2)}, want: "two\nthree\n"},
		{
			name: "a line is as old as its first piece",
			file: t1 + " stdout P on\n" + t2 + " stdout F e\n" + t2 + " stdout F two\n", o: Options{Since: at(t2)}, want: "two\n",
		},
		{name: "no last line", file: three, o: Options{Tail: n(0)}},
		{name: "last line", file: three, o: Options{Tail: n(1)}, want: "three\n"},
		{name: "more last lines than there are", file: three, o: Options{Tail: n(9)}, want: "one\ntwo\nthree\n"},
		{name: "last line of one stream", file: three, o: Options{Tail: n(1), Stream: v1.LogStreamStderr}, want: "two\n"},
		{
			name: "last line with its first pieces only",
			file: t1 + " stdout F zero\n" + t1 + " stdout P on\n" + t1 + " stderr F two\n" + t1 + " stdout F e\n",
			o:    Options{Tail: n(1)}, want: "one\n",
		},
		{name: "since among the last lines", file: three, o: Options{Tail: n(2), Since: at(t3)}, want: "three\n"},
		{name: "limit within a line", file: three, o: Options{LimitBytes: n(6)}, want: "one\ntw"},
		{name: "limit at the end", file: three, o: Options{LimitBytes: n(14)}, want: "one\ntwo\nthree\n"},
		{name: "no newline at the end", file: t1 + " stdout F one", want: "one"},
		{name: "torn header at the end", file: t1 + " stdout F one\n2026-01-02T03:0", want: "one\n", damaged: 1},
		{
			name: "zero bytes after a power cut",
			file: t1 + " stdout F one\n\x00\x00\x00" + t2 + " stdout F two\n", want: "one\ntwo\n",
		},
		{
			name: "garbage between lines",
			file: "{\"log\":\"x\"}\n" + t1 + " stdout X bad\n" + t1 + " stdin F bad\n" + "99 stdout F bad\n\n" + t1 + " stdout F \xff\x1b\n",
			want: "\xff\x1b\n", damaged: 4,
		},
		{
			name: "line longer than the buffer",
			file: t1 + " stdout F " + strings.Repeat("x", 3*bufferSize) + "\n" + t1 + " stdout F y\n",
			want: strings.Repeat("x", 3*bufferSize) + "\ny\n",
		},
		{
			name: "garbage longer than the buffer",
			file: strings.Repeat("\x00", 3*bufferSize) + "\n" + t1 + " stdout F y\n", want: "y\n", damaged: 1,
		},
		{
			name: "too much to hold back",
			file: t1 + " stdout P on\n" + strings.Repeat(t1+" stderr F "+strings.Repeat("e", 16<<10)+"\n", 5) + t1 + " stdout F e\n",
			want: "on\n" + strings.Repeat(strings.Repeat("e", 16<<10)+"\n", 5) + "e\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t, tt.file)
			var out bytes.Buffer
			damaged, err := Read(t.Context(), Source{Path: path}, tt.o, Output{Stdout: &out})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if damaged != tt.damaged {
				t.Errorf("damaged = %d, want %d", damaged, tt.damaged)
			}
		})
	}
}

func TestReadToTwoOutputs(t *testing.T) {
	path := file(t, t1+" stdout P on\n"+t1+" stderr F two\n"+t1+" stdout F e\n")
	var out, errs bytes.Buffer
	if _, err := Read(t.Context(), Source{Path: path}, Options{}, Output{Stdout: &out, Stderr: &errs}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "one\n" || errs.String() != "two\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "1.log")
	if err := os.Symlink(file(t, t1+" stdout F secret\n"), link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		path string
		o    Options
		want error
	}{
		{name: "missing", path: filepath.Join(dir, "0.log"), want: fs.ErrNotExist},
		{name: "missing folder, following", path: filepath.Join(dir, "no", "0.log"), o: Options{Follow: true}, want: fs.ErrNotExist},
		{name: "link", path: link},
		{name: "folder", path: dir},
		{name: "negative tail", path: dir, o: Options{Tail: n(-1)}},
		{name: "no bytes", path: dir, o: Options{LimitBytes: n(0)}},
		{name: "unknown stream", path: dir, o: Options{Stream: "stdin"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := Read(t.Context(), Source{Path: tt.path}, tt.o, Output{Stdout: &out})
			if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) || out.Len() > 0 {
				t.Errorf("Read = %v with output %q", err, out.String())
			}
		})
	}
}

func TestReadStopsAtBrokenOutput(t *testing.T) {
	path := file(t, strings.Repeat(t1+" stdout F line\n", 1<<14))
	want := errors.New("broken")
	w := &failing{err: want}
	if _, err := Read(t.Context(), Source{Path: path}, Options{}, Output{Stdout: w}); !errors.Is(err, want) {
		t.Errorf("Read = %v", err)
	}
	if w.calls != 1 {
		t.Errorf("output was tried %d times", w.calls)
	}
}

type failing struct {
	err   error
	calls int
}

func (f *failing) Write([]byte) (int, error) { f.calls++; return 0, f.err }

func TestReadIsCancelled(t *testing.T) {
	path := file(t, t1+" stdout F one\n")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Read(ctx, Source{Path: path}, Options{}, Output{Stdout: &bytes.Buffer{}}); !errors.Is(err, why) {
		t.Errorf("Read = %v", err)
	}
}

// TestTailAgainstWhole compares the backward search with a plain reading of
// the whole file, on random mixtures of lines and pieces.
func TestTailAgainstWhole(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var b strings.Builder
		for i := range rnd.IntN(60) {
			size := rnd.IntN(20)
			if rnd.IntN(20) == 0 {
				size = rnd.IntN(2 * bufferSize)
			}
			if rnd.IntN(15) == 0 {
				b.WriteString("garbage\n")
			}
			fmt.Fprintf(&b, "%s %s %s %d%s\n", t1, []string{"stdout", "stderr"}[rnd.IntN(2)], []string{"P", "F"}[rnd.IntN(2)], i, strings.Repeat("x", size))
		}
		path := file(t, b.String())
		for _, lines := range []int64{0, 1, 2, 3, 10, 100} {
			var out, errs bytes.Buffer
			o := Options{Tail: &lines, Timestamps: true}
			if _, err := Read(t.Context(), Source{Path: path}, o, Output{Stdout: &out, Stderr: &errs}); err != nil {
				t.Fatal(err)
			}
			wantOut, wantErrs := naiveTail(b.String(), int(lines))
			if out.String() != wantOut || errs.String() != wantErrs {
				t.Fatalf("seed %d, last %d lines:\nstdout %s\nstderr %s", seed, lines, cmp.Diff(wantOut, out.String()), cmp.Diff(wantErrs, errs.String()))
			}
		}
	}
}

// TestTailBehindZeros has a record behind the zero bytes that a power cut left.
func TestTailBehindZeros(t *testing.T) {
	for _, zeros := range []int{1, maxHeader - 10, maxHeader, 3*maxHeader + 5, bufferSize - 200} {
		path := file(t, t1+" stdout F one\n"+strings.Repeat("\x00", zeros)+t2+" stdout F two\n")
		var out bytes.Buffer
		if _, err := Read(t.Context(), Source{Path: path}, Options{Tail: n(1)}, Output{Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		if out.String() != "two\n" {
			t.Errorf("behind %d zero bytes: %q", zeros, out.String())
		}
	}
}

func naiveTail(content string, lines int) (string, string) {
	type logical struct {
		stream string
		text   string
		last   int // number of its last piece
	}
	var done []logical
	open := map[string]*logical{}
	for i, line := range strings.Split(strings.TrimSuffix(content, "\n"), "\n") {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) != 4 {
			continue
		}
		l := open[parts[1]]
		if l == nil {
			l = &logical{stream: parts[1], text: t1 + " "}
			open[parts[1]] = l
		}
		l.text += parts[3]
		l.last = i
		if parts[2] == "F" {
			l.text += "\n"
			done = append(done, *l)
			delete(open, parts[1])
		}
	}
	for _, l := range open {
		done = append(done, *l)
	}
	slices.SortFunc(done, func(a, b logical) int { return a.last - b.last })
	out := map[string]string{}
	for _, l := range done[max(len(done)-lines, 0):] {
		out[l.stream] += l.text
	}
	return out["stdout"], out["stderr"]
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(t1+" stdout F one\n"+t2+" stderr P two\n"), int64(1), int64(5), true)
	f.Add([]byte("\x00\x00\n\n"+t1+" stdout P:x \xff"), int64(0), int64(0), false)
	f.Add([]byte(t1+" stdout P on\n"+t1+" stderr P tw\n"+t1+" stdout F e\n"), int64(2), int64(0), true)
	f.Fuzz(func(t *testing.T, content []byte, lines, limit int64, stamps bool) {
		o := Options{Timestamps: stamps}
		if lines >= 0 {
			o.Tail = &lines
		}
		if limit > 0 {
			o.LimitBytes = &limit
		}
		var out bytes.Buffer
		path := file(t, string(content))
		if _, err := Read(t.Context(), Source{Path: path}, o, Output{Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		if limit > 0 && int64(out.Len()) > limit {
			t.Errorf("%d bytes for a limit of %d", out.Len(), limit)
		}
		if o.Tail != nil && *o.Tail == 0 && out.Len() > 0 {
			t.Errorf("no lines were wanted: %q", out.String())
		}
	})
}

func TestFromPodLogOptions(t *testing.T) {
	now := at(t2)
	since := at(t1)
	stream := v1.LogStreamStderr
	tests := []struct {
		name string
		in   v1.PodLogOptions
		want Options
		bad  bool
	}{
		{name: "nothing"},
		{
			name: "all", in: v1.PodLogOptions{Follow: true, Timestamps: true, TailLines: n(3), LimitBytes: n(4), SinceSeconds: n(60), Stream: &stream},
			want: Options{Follow: true, Timestamps: true, Tail: n(3), LimitBytes: n(4), Since: now.Add(-time.Minute), Stream: stream},
		},
		{name: "since a time", in: v1.PodLogOptions{SinceTime: newTime(since)}, want: Options{Since: since}},
		{name: "both", in: v1.PodLogOptions{SinceSeconds: n(1), SinceTime: newTime(since)}, bad: true},
		{name: "no seconds", in: v1.PodLogOptions{SinceSeconds: n(0)}, bad: true},
		{name: "very many seconds", in: v1.PodLogOptions{SinceSeconds: n(1 << 62)}, want: Options{Since: now.Add(-maxSinceSeconds * time.Second)}},
		{name: "negative tail", in: v1.PodLogOptions{TailLines: n(-1)}, bad: true},
		{name: "no bytes", in: v1.PodLogOptions{LimitBytes: n(0)}, bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromPodLogOptions(&tt.in, now)
			if (err != nil) != tt.bad {
				t.Fatalf("error: %v", err)
			}
			if diff := cmp.Diff(tt.want, got); !tt.bad && diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	if err := os.WriteFile(path, bytes.Repeat([]byte(t1+" stdout F a line of the usual length, more or less\n"), 10_000), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(b.Context(), Source{Path: path}, Options{}, Output{Stdout: &failingNever{}}); err != nil {
			b.Fatal(err)
		}
	}
}

type failingNever struct{}

func (failingNever) Write(b []byte) (int, error) { return len(b), nil }

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func n(i int64) *int64 { return &i }
