package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// sample is a small journal: its bytes, the batches in it, and where each
// begins. The first is the opening one.
type sample struct {
	data    []byte
	batches [][]Change
	starts  []int
}

func newSample(t testing.TB, seal *sealer) sample {
	t.Helper()
	s := sample{
		batches: [][]Change{
			nil,
			{put("a", "one"), put("b", "two")},
			{put("c", large(40, 1))},
			{del("a"), put("b", "three")},
			{put("d", ""), put("e", "last"), del("c")},
		},
		starts: []int{0},
	}
	m := newModel()
	j := mustOpen(t, m, seal)
	for _, batch := range s.batches[1:] {
		s.starts = append(s.starts, int(j.cur.size))
		mustWrite(t, j, batch...)
	}
	s.data = slices.Clone(m.names[fileName].now)
	return s
}

// without returns the state without one batch. -1 means with all batches.
func (s sample) without(lost int) state {
	got := state{}
	for i, batch := range s.batches {
		if i != lost {
			got = got.with(batch...)
		}
	}
	return got
}

// at returns the batch that contains the byte at an offset.
func (s sample) at(offset int) int {
	i, found := slices.BinarySearch(s.starts, offset)
	if !found {
		i--
	}
	return i
}

// survives opens damaged data. It fails unless they hold the state, there are as
// many warnings, and a Write repairs the file.
func survives(t *testing.T, what string, data []byte, seal *sealer, want state, warnings int) {
	t.Helper()
	m := modelWith(data)
	log, warned := logged()
	j, err := openModel(m, "/journal", seal, log)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := holds(t, j); len(got) != len(want) || fmt.Sprint(short(got)) != fmt.Sprint(short(want)) {
		t.Fatalf("%s: there is %v, want %v", what, short(got), short(want))
	}
	if got := lines(warned, ""); len(got) != warnings {
		t.Fatalf("%s: warnings %q, want %d", what, got, warnings)
	}
	mustWrite(t, j, put("after", what))
	log, warned = logged()
	j, err = openModel(m.after(outages(0)[0]), "/journal", seal, log)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	expect(t, j, want.with(put("after", what)))
	if got := lines(warned, ""); len(got) != 0 {
		t.Fatalf("%s: warnings after a Write: %q", what, got)
	}
}

// TestTornTail truncates the file at each byte of the last batch. The rest is
// missing, zeros or noise.
func TestTornTail(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		s := newSample(t, seal)
		last := len(s.batches) - 1
		for cut := s.starts[last]; cut <= len(s.data); cut++ {
			noise := make([]byte, len(s.data)-cut)
			rand.Read(noise)
			for name, rest := range map[string][]byte{
				"nothing": nil,
				"zeros":   make([]byte, len(s.data)-cut),
				"more":    make([]byte, len(s.data)-cut+3*sector),
				"noise":   noise,
			} {
				data := slices.Concat(s.data[:cut], rest)
				want, warnings := s.without(last), 1
				if bytes.HasPrefix(data, s.data) {
					want = s.without(-1)
				}
				if len(data) == s.starts[last] || bytes.Equal(data, s.data) {
					warnings = 0
				}
				survives(t, fmt.Sprintf("cut at %d, then %s", cut, name), data, seal, want, warnings)
			}
		}
	})
}

func TestTornTailIsNamedAndCutOff(t *testing.T) {
	s := newSample(t, nil)
	m := modelWith(s.data[:len(s.data)-1])
	log, warned := logged()
	j, err := openModel(m, "/journal", nil, log)
	if err != nil {
		t.Fatal(err)
	}
	// The lost batch's number is not used again.
	if want := uint64(len(s.batches)); j.seq != want {
		t.Errorf("the last sequence is %d, want %d", j.seq, want)
	}
	last := s.starts[len(s.starts)-1]
	want := fmt.Sprintf("offset=%d bytes=%d", last, len(s.data)-1-last)
	if got := lines(warned, "torn tail"); len(got) != 1 || !strings.Contains(got[0], want) || !strings.Contains(got[0], "/journal") {
		t.Errorf("warnings %q, want %q", got, want)
	}
	if got := len(m.after(outages(0)[0]).names[fileName].now); got != last {
		t.Errorf("the file has %d bytes, want %d", got, last)
	}
}

// TestBitFlips flips each bit of a journal: exactly one batch may be lost.
func TestBitFlips(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		s := newSample(t, seal)
		for bit := range len(s.data) * 8 {
			data := slices.Clone(s.data)
			data[bit/8] ^= 1 << (bit % 8)
			lost := s.at(bit / 8)
			survives(t, fmt.Sprintf("bit %d, of batch %d", bit, lost), data, seal, s.without(lost), 1)
		}
	})
}

func TestDamageIsNamed(t *testing.T) {
	s := newSample(t, nil)
	size := s.starts[3] - s.starts[2]
	for name, at := range map[string]int{"header": s.starts[2] + 20, "payload": s.starts[2] + headerSize + 5} {
		t.Run(name, func(t *testing.T) {
			data := slices.Clone(s.data)
			data[at] ^= 1
			log, warned := logged()
			if _, err := openModel(modelWith(data), "/journal", nil, log); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("offset=%d bytes=%d", s.starts[2], size)
			if got := lines(warned, "damaged part"); len(got) != 1 || !strings.Contains(got[0], want) || !strings.Contains(got[0], "/journal") {
				t.Errorf("warnings %q, want %q", got, want)
			}
		})
	}
}

// TestLostSectors loses each sector of a journal with batches of all sizes.
func TestLostSectors(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		m := newModel()
		j := mustOpen(t, m, seal)
		var starts []int
		for i := range 40 {
			starts = append(starts, int(j.cur.size))
			mustWrite(t, j, put(fmt.Sprint("key", i), large(i*i, byte(i))))
		}
		data := m.names[fileName].now
		for at := 0; at < len(data); at += sector {
			damaged := slices.Clone(data)
			end := min(at+sector, len(data))
			clear(damaged[at:end])
			want := state{}
			for i, start := range starts {
				next := len(data)
				if i+1 < len(starts) {
					next = starts[i+1]
				}
				if start >= end || next <= at {
					want[fmt.Sprint("key", i)] = large(i*i, byte(i))
				}
			}
			j := mustOpen(t, modelWith(damaged), seal)
			expect(t, j, want)
		}
	})
}

func TestGarbage(t *testing.T) {
	s := newSample(t, nil)
	for _, row := range []struct {
		name     string
		data     []byte
		warnings int
	}{
		{"an empty file", nil, 1},
		{"a byte", []byte{0}, 1},
		{"text", []byte(strings.Repeat("not a journal\n", 100)), 1},
		{"zeros", make([]byte, 3*windowSize), 1},
		{"magic words", bytes.Repeat(magic, windowSize), 1},
		{"half a header", s.data[:headerSize/2], 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			forms(t, func(t *testing.T, seal *sealer) {
				survives(t, row.name, row.data, seal, state{}, row.warnings)
			})
		})
	}
	t.Run("before a journal", func(t *testing.T) {
		// All that is left of the first two batches is noise.
		data := slices.Concat(bytes.Repeat([]byte{7}, 2*windowSize+13), s.data[s.starts[2]:])
		survives(t, "noise", data, nil, s.without(1), 1)
	})
}

// mend corrects the checksums of a batch.
func mend(data []byte, start int) {
	length := int(binary.LittleEndian.Uint32(data[start+48:]))
	if start+headerSize+length <= len(data) {
		binary.LittleEndian.PutUint32(data[start+52:], crc32.Checksum(data[start+headerSize:][:length], castagnoli))
	}
	binary.LittleEndian.PutUint32(data[start+56:], crc32.Checksum(data[start:][:56], castagnoli))
}

// TestForgedFields changes fields and corrects the checksums, as damage in memory
// or an attacker would.
func TestForgedFields(t *testing.T) {
	for _, row := range []struct {
		name   string
		at     int // in the batch
		bytes  []byte
		sealed bool // it is told in a sealed journal alone
	}{
		{"no records", 12, []byte{0}, false},
		{"more records", 12, []byte{9}, false},
		{"fewer records", 12, []byte{1}, false},
		{"many records", 12, []byte{255, 255, 255, 255}, false},
		{"another time", 24, []byte{1, 2, 3}, true},
		{"another kind", headerSize + lengthSize, []byte{9}, false},
		{"an opening", headerSize + lengthSize, []byte{kindOpening}, false},
		{"a short head", headerSize, []byte{3, 0}, false},
		{"a long head", headerSize, []byte{255, 255}, false},
		{"a large value", headerSize + lengthSize + 1, []byte{255, 255, 255, 255}, false},
		{"a value with no name", headerSize, []byte{headSize, 0}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			forms(t, func(t *testing.T, seal *sealer) {
				s := newSample(t, seal)
				field := s.data[s.starts[1]+row.at:][:len(row.bytes)]
				if bytes.Equal(field, row.bytes) {
					field[0]++ // the ciphertext of this run has these bytes
				} else {
					copy(field, row.bytes)
				}
				mend(s.data, s.starts[1])
				want, warnings := s.without(1), 1
				if row.sealed && seal == nil {
					want, warnings = s.without(-1), 0
				}
				survives(t, row.name, s.data, seal, want, warnings)
			})
		})
	}
}

// TestSequence checks that an old batch is not accepted as a new one.
func TestSequence(t *testing.T) {
	s := newSample(t, nil)
	for _, row := range []struct {
		name string
		seq  uint64
		ok   bool
	}{
		{"the same", 4, false},
		{"the next", 5, true},
		{"a later one", 1 << 40, true},
		{"the last", endOfSequence - 1, true},
		{"beyond", endOfSequence, false},
		{"beyond all", 1<<64 - 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			data := slices.Clone(s.data)
			last := s.starts[4]
			binary.LittleEndian.PutUint64(data[last+16:], row.seq)
			mend(data, last)
			want := s.without(4)
			if row.ok {
				want = s.without(-1)
			}
			expect(t, mustOpen(t, modelWith(data), nil), want)
		})
	}
	t.Run("an old batch again", func(t *testing.T) {
		data := slices.Concat(s.data, s.data[s.starts[1]:s.starts[2]])
		survives(t, "copied", data, nil, s.without(-1), 1)
	})
}

// TestVersion checks that a journal of a later version is rejected and left
// unchanged.
func TestVersion(t *testing.T) {
	s := newSample(t, nil)
	for _, start := range s.starts {
		binary.LittleEndian.PutUint32(s.data[start+8:], version+1)
		mend(s.data, start)
	}
	m := modelWith(s.data)
	if _, err := openModel(m, "/journal", nil, quiet()); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("error %v", err)
	}
	if len(m.ops) != 0 || !bytes.Equal(m.names[fileName].now, s.data) || !m.closed {
		t.Errorf("operations %v, closed %v", m.ops, m.closed)
	}
}

// TestValueThatIsAJournal stores a batch as a value. With the header before it
// damaged, the search for the next header passes through the value.
func TestValueThatIsAJournal(t *testing.T) {
	bait := newSample(t, nil)
	for _, start := range bait.starts {
		binary.LittleEndian.PutUint64(bait.data[start+16:], 1000+uint64(start))
		mend(bait.data, start)
	}
	m := newModel()
	j := mustOpen(t, m, nil)
	mustWrite(t, j, put("a", "1"))
	start := j.cur.size
	mustWrite(t, j, put("bait", string(bait.data)))
	mustWrite(t, j, put("b", "2"))
	data := slices.Clone(m.names[fileName].now)
	data[start] ^= 1
	survives(t, "bait", data, nil, state{"a": "1", "b": "2"}, 1)
	// Nor does the file's first header have to be there for that.
	data[0] ^= 1
	survives(t, "bait", data, nil, state{"a": "1", "b": "2"}, 2)
}

// TestLengthsAreBelievedWithinTheFile checks that no number on the disk determines
// how much memory is allocated.
func TestLengthsAreBelievedWithinTheFile(t *testing.T) {
	s := newSample(t, nil)
	for _, at := range []int{12, 48, headerSize + lengthSize + 1} {
		data := slices.Clone(s.data)
		copy(data[s.starts[1]+at:], []byte{255, 255, 255, 255})
		mend(data, s.starts[1])
		m := modelWith(data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		mustOpen(t, m, nil)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("number at %d: %d bytes were allocated", at, got)
		}
	}
}

// TestDamageWhileOpen damages a value after Open has read the journal.
func TestDamageWhileOpen(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		for name, damage := range map[string]func(m *model, j *Journal){
			"a bit": func(m *model, j *Journal) { m.names[fileName].now[j.entries["a"].offset+3] ^= 1 },
			"the end": func(m *model, j *Journal) {
				n := m.names[fileName]
				n.now = n.now[:j.entries["a"].offset+1]
			},
		} {
			t.Run(name, func(t *testing.T) {
				m := newModel()
				j := mustOpen(t, m, seal)
				mustWrite(t, j, put("a", "value"))
				damage(m, j)
				for range 2 {
					value, ok, err := j.Read("a")
					if !errors.Is(err, ErrDamaged) || ok || value != nil || !strings.Contains(err.Error(), `"a"`) {
						t.Errorf("%q, %v, %v", value, ok, err)
					}
				}
				mustWrite(t, j, put("a", "value"))
				expect(t, j, state{"a": "value"})
			})
		}
	})
}

// TestRewriteLeavesDamageBehind rewrites the file although a value is damaged.
func TestRewriteLeavesDamageBehind(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		m := newModel()
		log, warned := logged()
		j, err := openModel(m, "/journal", seal, log)
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, j, put("a", "lost"), put("b", "kept"))
		m.names[fileName].now[j.entries["a"].offset] ^= 1
		mustWrite(t, j, put("c", large(minDeadBytes, 1)))
		mustWrite(t, j, put("c", large(minDeadBytes, 2)))
		mustWrite(t, j, del("c"))
		expect(t, j, state{"b": "kept"})
		if got := lines(warned, "damaged value"); len(got) != 1 {
			t.Errorf("warnings %q", got)
		}
		expect(t, mustOpen(t, m.restarted(), seal), state{"b": "kept"})
	})
}
