package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// state is the content of a journal.
type state map[string]string

// with returns the state after changes.
func (s state) with(changes ...Change) state {
	next := maps.Clone(s)
	for _, c := range changes {
		if c.Value == nil {
			delete(next, c.Key)
		} else {
			next[c.Key] = string(c.Value)
		}
	}
	return next
}

func put(key, value string) Change { return Change{Key: key, Value: []byte(value)} }
func del(key string) Change        { return Change{Key: key} }

// large returns a value of n bytes that is unique for its seed.
func large(n int, seed byte) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed
	}
	return string(b)
}

// quiet returns a log that discards everything.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logged returns a log and its output.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// lines returns the warnings that contain a text.
func lines(b *bytes.Buffer, text string) []string {
	var all []string
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, text) {
			all = append(all, line)
		}
	}
	return all
}

// testKey returns a key. number distinguishes several.
func testKey(number byte) []byte { return bytes.Repeat([]byte{number}, keySize) }

// testSeal returns the sealer of testKey, nil for 0.
func testSeal(t testing.TB, number byte) *sealer {
	t.Helper()
	if number == 0 {
		return nil
	}
	seal, err := newSealer(testKey(number))
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

// forms runs a test on plain and on sealed journals.
func forms(t *testing.T, test func(t *testing.T, seal *sealer)) {
	t.Run("plain", func(t *testing.T) { test(t, nil) })
	t.Run("sealed", func(t *testing.T) { test(t, testSeal(t, 1)) })
}

func mustOpen(t testing.TB, d disk, seal *sealer) *Journal {
	t.Helper()
	j, err := openModel(d, "/journal", seal, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustWrite(t testing.TB, j *Journal, changes ...Change) {
	t.Helper()
	if err := j.Write(changes...); err != nil {
		t.Fatal(err)
	}
}

// holds returns the content of a journal.
func holds(t testing.TB, j *Journal) state {
	t.Helper()
	s := make(state)
	for _, key := range j.Keys("") {
		value, ok, err := j.Read(key)
		if err != nil || !ok {
			t.Fatalf("read %q: %v, %v", key, ok, err)
		}
		s[key] = string(value)
	}
	return s
}

func expect(t testing.TB, j *Journal, want state) {
	t.Helper()
	if got := holds(t, j); !maps.Equal(got, want) {
		t.Fatalf("journal holds %v, want %v", short(got), short(want))
	}
}

// short returns a state in a readable form.
func short(s state) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		value := s[key]
		if len(value) > 12 {
			value = value[:12] + "..."
		}
		all = append(all, key+"="+value)
	}
	return all
}

func TestMap(t *testing.T) {
	for _, row := range []struct {
		name    string
		batches [][]Change
		want    state
	}{
		{"nothing", nil, state{}},
		{"one", [][]Change{{put("a", "1")}}, state{"a": "1"}},
		{"several at once", [][]Change{{put("a", "1"), put("b", "2")}}, state{"a": "1", "b": "2"}},
		{"an empty value is one", [][]Change{{put("a", "")}}, state{"a": ""}},
		{"replaced", [][]Change{{put("a", "1")}, {put("a", "2")}}, state{"a": "2"}},
		{"deleted", [][]Change{{put("a", "1"), put("b", "2")}, {del("a")}}, state{"b": "2"}},
		{"deleted and back", [][]Change{{put("a", "1")}, {del("a")}, {put("a", "1")}}, state{"a": "1"}},
		{"deleted what is not there", [][]Change{{del("a")}}, state{}},
		{"the last of a batch counts", [][]Change{{put("a", "1"), put("a", "2"), del("b"), put("b", "3")}}, state{"a": "2", "b": "3"}},
		{"put and deleted in a batch", [][]Change{{put("a", "1"), del("a")}}, state{}},
		{"the longest key", [][]Change{{put(strings.Repeat("k", MaxKey), "1")}}, state{strings.Repeat("k", MaxKey): "1"}},
		{"any bytes", [][]Change{{put("\x00\xff/..", "\x00")}}, state{"\x00\xff/..": "\x00"}},
		{"over a chunk", [][]Change{{put("a", large(chunk+1, 1)), put("b", large(10, 2)), put("c", large(chunk-70, 3))}},
			state{"a": large(chunk+1, 1), "b": large(10, 2), "c": large(chunk-70, 3)}},
		{"many", [][]Change{manyChanges(1000)}, state{}.with(manyChanges(1000)...)},
	} {
		t.Run(row.name, func(t *testing.T) {
			forms(t, func(t *testing.T, seal *sealer) {
				m := newModel()
				j := mustOpen(t, m, seal)
				for _, batch := range row.batches {
					mustWrite(t, j, batch...)
				}
				expect(t, j, row.want)
				if err := j.Close(); err != nil || !m.closed {
					t.Fatal(err, m.closed)
				}
				expect(t, mustOpen(t, m.restarted(), seal), row.want)
				expect(t, mustOpen(t, m.after(outages(0)[0]), seal), row.want)
			})
		})
	}
}

func manyChanges(n int) []Change {
	var all []Change
	for i := range n {
		all = append(all, put("key"+string(rune('0'+i%10))+strings.Repeat("x", i/10), large(i, byte(i))))
	}
	return all
}

func TestKeys(t *testing.T) {
	j := mustOpen(t, newModel(), nil)
	mustWrite(t, j, put("pod/b", ""), put("pod/a", ""), put("podx", ""), put("secret/a", ""))
	for _, row := range []struct {
		prefix string
		want   []string
	}{
		{"", []string{"pod/a", "pod/b", "podx", "secret/a"}},
		{"pod/", []string{"pod/a", "pod/b"}},
		{"pod/a", []string{"pod/a"}},
		{"token/", nil},
	} {
		if diff := cmp.Diff(row.want, j.Keys(row.prefix)); diff != "" {
			t.Errorf("%q: %s", row.prefix, diff)
		}
	}
}

func TestReadOfWhatIsNotThere(t *testing.T) {
	j := mustOpen(t, newModel(), nil)
	if value, ok, err := j.Read("a"); value != nil || ok || err != nil {
		t.Errorf("%q, %v, %v", value, ok, err)
	}
}

func TestReadGivesItsOwnCopy(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		j := mustOpen(t, newModel(), seal)
		given := []byte("value")
		mustWrite(t, j, Change{"a", given})
		clear(given)
		first, _, err := j.Read("a")
		if err != nil {
			t.Fatal(err)
		}
		clear(first)
		expect(t, j, state{"a": "value"})
	})
}

func TestWriteRefuses(t *testing.T) {
	half := make([]byte, MaxBatch/2)
	for _, row := range []struct {
		name    string
		changes []Change
		err     string
	}{
		{"no key", []Change{put("", "1")}, "key has 0 bytes, not 1 to 1024"},
		{"a long key", []Change{del(strings.Repeat("k", MaxKey+1))}, "key has 1025 bytes"},
		{"a large value", []Change{{"a", make([]byte, MaxBatch+1)}}, `value of "a" has 67108865 bytes`},
		{"a large batch", []Change{{"a", half}, {"b", half}}, "changes have more than 67108864 bytes"},
		{"one bad of two", []Change{put("a", "1"), put("", "2")}, "key has 0 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newModel()
			j := mustOpen(t, m, nil)
			ops := len(m.ops)
			err := j.Write(row.changes...)
			if err == nil || !strings.Contains(err.Error(), row.err) || !strings.Contains(err.Error(), "/journal") {
				t.Errorf("error %v, want %q and the path", err, row.err)
			}
			if len(m.ops) != ops {
				t.Errorf("operations %v", m.ops[ops:])
			}
			expect(t, j, state{})
		})
	}
}

func TestUnchangedIsNotWritten(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		m := newModel()
		j := mustOpen(t, m, seal)
		mustWrite(t, j, put("a", "1"), put("b", ""))
		newest := j.Newest()
		for _, j := range []*Journal{j, mustOpen(t, m, seal)} {
			ops, reads := len(m.ops), m.reads
			mustWrite(t, j)
			mustWrite(t, j, put("a", "1"))
			mustWrite(t, j, put("b", ""), put("a", "1"), del("c"))
			mustWrite(t, j, put("a", "2"), put("a", "1"))
			if len(m.ops) != ops || m.reads != reads {
				t.Errorf("%d reads, operations %v", m.reads-reads, m.ops[ops:])
			}
			if got := j.Newest(); !got.Equal(newest) {
				t.Errorf("newest went from %v to %v", newest, got)
			}
		}
		// Of a batch, only what changes is written.
		before := mustOpen(t, m, seal).cur.size
		mustWrite(t, j, put("a", "1"), put("b", "x"), del("c"))
		h := head{kind: kindPut, name: "b", size: 1}
		if got, want := j.cur.size-before, headerSize+h.stored(seal); got != want {
			t.Errorf("the batch took %d bytes, want %d", got, want)
		}
	})
}

func TestCostOfAWrite(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, nil)
	for _, changes := range [][]Change{{put("a", "1")}, {put("a", large(chunk/2, 1)), put("b", "2")}, {del("b")}} {
		ops, reads := len(m.ops), m.reads
		mustWrite(t, j, changes...)
		if diff := cmp.Diff([]string{"write", "datasync"}, m.ops[ops:]); diff != "" || m.reads != reads {
			t.Errorf("%d reads, %s", m.reads-reads, diff)
		}
	}
}

func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		j := mustOpen(t, m, nil)
		if got := j.Newest(); !got.IsZero() {
			t.Errorf("newest of nothing is %v", got)
		}
		time.Sleep(time.Hour)
		mustWrite(t, j, put("a", large(minDeadBytes, 1)))
		written := time.Now()
		time.Sleep(time.Hour)
		check := func(j *Journal) {
			t.Helper()
			if got := j.Newest(); !got.Equal(written) {
				t.Errorf("newest is %v, want %v", got, written)
			}
		}
		check(j)
		check(mustOpen(t, m.restarted(), nil))
		mustWrite(t, j, del("a"))
		mustWrite(t, j, put("b", large(minDeadBytes, 1)))
		mustWrite(t, j, del("b")) // tidies up
		written = time.Now()
		time.Sleep(time.Hour)
		if len(m.names[fileName].now) > 1000 {
			t.Errorf("the file has %d bytes", len(m.names[fileName].now))
		}
		check(j)
		check(mustOpen(t, m.restarted(), nil))
		// To seal is not to write.
		j, err := openOn(m.restarted(), "/journal", testSeal(t, 1), &Config{Log: quiet(), Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		check(j)
	})
}

func TestAfterClose(t *testing.T) {
	j := mustOpen(t, newModel(), nil)
	mustWrite(t, j, put("a", "1"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if err := j.Write(put("a", "2")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if _, _, err := j.Read("a"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if got := j.Keys(""); !slices.Equal(got, []string{"a"}) || j.Newest().IsZero() {
		t.Errorf("keys %q, newest %v", got, j.Newest())
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		c    Config
		err  string
	}{
		{"no folder", Config{Log: quiet()}, "Dir and Log are required"},
		{"no log", Config{Dir: t.TempDir()}, "Dir and Log are required"},
		{"a short key", Config{Dir: t.TempDir(), Log: quiet(), Key: make([]byte, 16)}, "key has 16 bytes, not 32"},
		{"an empty key", Config{Dir: t.TempDir(), Log: quiet(), Key: []byte{}}, "key has 0 bytes, not 32"},
		{"a file", Config{Dir: file, Log: quiet()}, "not a directory"},
		{"a folder in its place", Config{Dir: folder, Log: quiet()}, "is a directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			j, err := Open(row.c)
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("error %v, want %q", err, row.err)
			}
			if j != nil {
				t.Error("a journal with an error")
			}
		})
	}
}

// TestConcurrent writes, reads and rewrites concurrently, for the race detector.
func TestConcurrent(t *testing.T) {
	j, err := Open(Config{Dir: filepath.Join(t.TempDir(), "j"), Key: testKey(1), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for writer := range byte(4) {
		own := "own" + string('0'+rune(writer))
		all.Go(func() {
			for i := range byte(30) {
				value := large(4000, i)
				if err := j.Write(put(own, value), put("shared", value)); err != nil {
					t.Error(err)
					return
				}
				got, ok, err := j.Read(own)
				if err != nil || !ok || string(got) != value {
					t.Errorf("%s: %v, %v", own, ok, err)
				}
			}
		})
		all.Go(func() {
			for range 60 {
				// Whole values of one batch each, whatever is rewritten.
				got, ok, err := j.Read("shared")
				if err != nil || ok && string(got) != large(4000, got[0]) {
					t.Errorf("shared: %v", err)
				}
				j.Keys("own")
				j.Newest()
			}
		})
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// openModel opens a journal without an anchor.
func openModel(d disk, path string, seal *sealer, log *slog.Logger) (*Journal, error) {
	return openOn(d, path, seal, &Config{Log: log})
}
