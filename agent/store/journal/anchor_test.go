package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

var errAnchor = errors.New("the anchor does not answer")

// testAnchor is an anchor that outlives the model's disk. Its operations count
// with those of the disk.
type testAnchor struct {
	id         [16]byte
	generation uint64
	there      bool
	bound      bool
	none       bool // Begin makes none
	m          *model
	fails      bool
}

func (a *testAnchor) Read() (id [16]byte, generation uint64, bound bool, err error) {
	switch {
	case a.fails:
		return id, 0, false, errAnchor
	case !a.there:
		return id, 0, false, fs.ErrNotExist
	}
	return a.id, a.generation, a.bound, nil
}

func (a *testAnchor) Begin() (id [16]byte, generation uint64, err error) {
	if a.none {
		return id, 0, fs.ErrNotExist
	}
	err = a.m.do("begin", func() {
		a.id[0]++
		a.there, a.bound, a.generation = true, false, 7
	}, nil)
	return a.id, a.generation, err
}

func (a *testAnchor) Advance(generation uint64) error {
	return a.m.do("advance", func() {
		a.bound, a.generation = true, max(a.generation, generation)
	}, nil)
}

func anchored(m *model, seal *sealer, a *testAnchor, trust bool) (*Journal, error) {
	a.m = m
	return openOn(m, "/journal", seal, &Config{Log: quiet(), Anchor: a, Migrate: trust})
}

func mustAnchored(t *testing.T, m *model, seal *sealer, a *testAnchor) *Journal {
	t.Helper()
	j, err := anchored(m, seal, a, false)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func fileOf(m *model) []byte { return slices.Clone(m.names[fileName].now) }

// TestRefused puts a file that must be rejected in place of the journal. The file
// must stay unchanged, and a migration must accept it if it is readable.
func TestRefused(t *testing.T) {
	seal := testSeal(t, 1)
	write := func(m *model, seal *sealer, a *testAnchor, changes ...Change) []byte {
		t.Helper()
		config := &Config{Log: quiet()}
		if a != nil {
			a.m, config.Anchor = m, a
		}
		j, err := openOn(m, "/journal", seal, config)
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, j, changes...)
		return fileOf(m)
	}
	var a testAnchor
	m := newModel()
	former := write(m, seal, nil, put("pod", "of the former release"))
	a.m = m
	older := write(m, seal, &a, put("pod", "good"))
	newer := write(m.restarted(), seal, &a, del("pod"))
	plain := write(newModel(), nil, nil, put("pod", "forged"))
	other := write(newModel(), testSeal(t, 2), nil, put("pod", "of another key"))
	elsewhere := write(newModel(), seal, &testAnchor{id: [16]byte{99}}, put("pod", "of another anchor"))

	for _, row := range []struct {
		name   string
		data   []byte
		change func(a *testAnchor)
		want   error
		taken  state // by a migration; nil is none
	}{
		{"the journal", newer, nil, nil, state{}},
		{"a plain file", plain, nil, ErrPlain, state{"pod": "forged"}},
		{"a plain file, no anchor", plain, func(a *testAnchor) { *a = testAnchor{none: true} }, ErrPlain, state{"pod": "forged"}},
		{"a plain file, first header damaged", broken(plain, 3), nil, ErrPlain, state{"pod": "forged"}},
		{"an older copy", older, nil, ErrStale, state{"pod": "good"}},
		{"an older copy with the newer one's tail", slices.Concat(older, newer[openingSize(seal):]), nil, ErrStale, state{"pod": "good"}},
		{"a copy of the former release", former, nil, ErrStale, state{"pod": "of the former release"}},
		{"a copy of the former release, no anchor yet", former, func(a *testAnchor) { *a = testAnchor{} }, nil, state{"pod": "of the former release"}},
		{"another key", other, nil, ErrKey, nil},
		{"another anchor", elsewhere, nil, ErrStale, state{"pod": "of another anchor"}},
		{"an anchor that is gone", newer, func(a *testAnchor) { a.there = false }, ErrStale, state{}},
		{"an anchor that is gone for good", newer, func(a *testAnchor) { *a = testAnchor{none: true} }, ErrStale, state{}},
		{"an anchor that does not answer", newer, func(a *testAnchor) { a.fails = true }, errAnchor, nil},
		{"no file", nil, nil, nil, state{}},
		{"an empty plain file", plain[:openingSize(nil)], nil, nil, state{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := a
			if row.change != nil {
				row.change(&now)
			}
			disk := newModel()
			if row.data != nil {
				disk = modelWith(row.data)
			}
			before := now
			j, err := anchored(disk, seal, &now, false)
			if !errors.Is(err, row.want) {
				t.Fatalf("error %v, want %v", err, row.want)
			}
			if row.want == nil {
				expect(t, j, row.taken)
				return
			}
			if len(disk.ops) != 0 || !bytes.Equal(fileOf(disk), row.data) || !disk.closed {
				t.Errorf("operations %v, closed %v", disk.ops, disk.closed)
			}
			if now.generation != before.generation || now.id != before.id {
				t.Errorf("the anchor has changed to %+v", now)
			}
			j, err = anchored(disk.restarted(), seal, &now, true)
			if row.taken == nil {
				if !errors.Is(err, row.want) {
					t.Errorf("a migration: error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expect(t, j, row.taken)
			// It is the journal now, and what was is not any more.
			expect(t, mustAnchored(t, disk.restarted(), seal, &now), row.taken)
			if !now.none {
				if _, err := anchored(modelWith(older), seal, &now, false); !errors.Is(err, ErrStale) {
					t.Errorf("the older copy after a migration: %v", err)
				}
			}
		})
	}
}

// broken returns data with one byte changed.
func broken(data []byte, at int) []byte {
	data = slices.Clone(data)
	data[at] ^= 1
	return data
}

// TestGenerations checks that the generation rises with each open of a file that
// was written to, and with no other: a board that only restarts wears neither its
// card nor its TPM.
func TestGenerations(t *testing.T) {
	seal := testSeal(t, 1)
	m, a := newModel(), &testAnchor{}
	open := func(want uint64) *Journal {
		t.Helper()
		m = m.restarted()
		j := mustAnchored(t, m, seal, a)
		if a.generation != want || !a.bound {
			t.Fatalf("the anchor has %d, bound %v, want %d", a.generation, a.bound, want)
		}
		return j
	}
	j := open(8)
	mustWrite(t, j, put("a", "1"))
	open(9)
	if before := len(m.ops); before == 0 {
		t.Error("the file was not written anew")
	}
	for range 3 {
		open(9)
		if got := strings.Join(m.ops, " "); got != "sync syncdir" {
			t.Errorf("operations of an open after no write: %s", got)
		}
	}
	// A rewrite in the midst of a generation leaves copies from before it.
	j = open(9)
	for i := range byte(40) {
		mustWrite(t, j, put("big", large(8<<10, i)))
	}
	mustWrite(t, j, put("big", ""), put("b", "2"))
	j = open(10)
	expect(t, j, state{"a": "1", "b": "2", "big": ""})
	if err := j.Write(put(markPrefix+"x", "1")); err == nil {
		t.Error("a caller wrote a generation")
	}
	if keys := j.Keys(""); !slices.Equal(keys, []string{"a", "b", "big"}) {
		t.Errorf("keys %q", keys)
	}
	// Damage to either copy of the generation does not take it.
	data := fileOf(m)
	for _, at := range []int{int(openingSize(seal)) + headerSize + 5, len(data) - 5} {
		now := *a
		expect(t, mustAnchored(t, modelWith(broken(data, at)), seal, &now), state{"a": "1", "b": "2", "big": ""})
	}
}

// TestFormerReleaseReads reads and writes a journal with generations without using
// the anchor, as an earlier release does: everything else must stay.
func TestFormerReleaseReads(t *testing.T) {
	seal := testSeal(t, 1)
	m, a := newModel(), &testAnchor{}
	mustWrite(t, mustAnchored(t, m, seal, a), put("a", "1"))
	data := fileOf(m)
	for _, seen := range bytesOf(t, data, seal) {
		h, ok := parseHead(seen)
		if !ok {
			t.Errorf("head %q is none of format 1", seen)
		}
		if strings.HasPrefix(h.name, markPrefix) && len(h.name) > MaxKey {
			t.Errorf("the name has %d bytes", len(h.name))
		}
	}
}

// bytesOf returns the plain heads of a sealed file.
func bytesOf(t *testing.T, data []byte, seal *sealer) (heads [][]byte) {
	t.Helper()
	for at := 0; at < len(data); {
		h, ok := parseHeader(data[at:])
		if !ok || h.version != 1 {
			t.Fatalf("no header of version 1 at %d", at)
		}
		size := int(data[at+headerSize]) | int(data[at+headerSize+1])<<8
		stored := slices.Clone(data[at+headerSize+lengthSize:][:size])
		head, ok := seal.open(stored, headData(nil, data[at:at+headerSize], 0))
		if !ok {
			t.Fatalf("the head at %d cannot be opened", at)
		}
		heads = append(heads, head)
		at += headerSize + int(h.length)
	}
	return heads
}

// TestPowerCutsOfAnchor cuts the power at each operation of disk and anchor. No
// valid journal may be rejected, and nothing that was written may be lost. Copies
// from before the last complete generation must be rejected.
func TestPowerCutsOfAnchor(t *testing.T) {
	seal := testSeal(t, 1)
	former := newModel()
	mustWrite(t, mustOpen(t, former, seal), put("a", "0"))
	for name, begin := range map[string]func() *model{"new": newModel, "of the former release": func() *model { return modelWith(fileOf(former)) }} {
		for cut := 0; ; cut++ {
			m, a := begin(), &testAnchor{}
			done, allowed := tell(m, seal, a, cut)
			for _, o := range outages(2) {
				what := fmt.Sprintf("%s, operation %d, %s", name, cut, o.name)
				after, now := m.after(o), *a
				j, err := anchored(after, seal, &now, false)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				value, ok, err := j.Read("a")
				if err != nil || !slices.Contains(allowed, string(value)) && (ok || !slices.Contains(allowed, "")) {
					t.Fatalf("%s: %q, %v, want one of %q", what, value, err, allowed)
				}
				mustWrite(t, j, put("a", "last"))
				again := after.restarted()
				expect(t, mustAnchored(t, again, seal, &now), state{"a": "last"})
			}
			if done {
				break
			}
		}
	}
}

// tell opens and writes three times, until the power is cut at an operation. It
// returns whether it completed, and what may be on the disk.
func tell(m *model, seal *sealer, a *testAnchor, cut int) (done bool, allowed []string) {
	count := 0
	fault := func(int, string) fault {
		count++
		return fault{cut: count > cut}
	}
	allowed = []string{"", "0"}
	for i := range 3 {
		m.fault = fault
		j, err := anchored(m, seal, a, false)
		if err != nil {
			return false, allowed
		}
		want := fmt.Sprint(i + 1)
		if err := j.Write(put("a", want)); err != nil {
			return false, append(allowed, want)
		}
		allowed = []string{want}
		*m = *m.restarted()
	}
	return true, allowed
}

// TestAnchorThatCannotBeRaised checks that nothing is rejected while Advance fails,
// and that the next open raises the anchor.
func TestAnchorThatCannotBeRaised(t *testing.T) {
	seal := testSeal(t, 1)
	m, a := newModel(), &testAnchor{}
	mustWrite(t, mustAnchored(t, m, seal, a), put("a", "1"))
	at := a.generation
	for i := range 3 {
		m = m.restarted()
		m.fault = func(_ int, op string) fault {
			if op == "advance" {
				return fault{err: errAnchor}
			}
			return fault{}
		}
		j := mustAnchored(t, m, seal, a)
		mustWrite(t, j, put("a", fmt.Sprint(i)))
		if a.generation != at {
			t.Fatal("the anchor was raised")
		}
	}
	m = m.restarted()
	expect(t, mustAnchored(t, m, seal, a), state{"a": "2"})
	if a.generation != at+4 {
		t.Errorf("the anchor has %d, want %d", a.generation, at+4)
	}
}

// FuzzMark checks that parseMark accepts only names that mark.name returns.
func FuzzMark(f *testing.F) {
	f.Add((&generationMark{id: [16]byte{1, 2, 3}, generation: 1}).name())
	f.Add((&generationMark{id: [16]byte{255}, generation: 1<<64 - 1, last: 1<<64 - 1}).name())
	f.Add(markPrefix + "00/+1/0")
	f.Fuzz(func(t *testing.T, name string) {
		m, ok := parseMark(name)
		if !ok {
			return
		}
		if m.name() != name || !strings.HasPrefix(name, markPrefix) || len(name) > MaxKey {
			t.Fatalf("%q was taken for %+v", name, m)
		}
	})
}
