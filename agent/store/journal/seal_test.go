package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrongKey(t *testing.T) {
	right := testSeal(t, 1)
	s := newSample(t, right)
	noBegin := slices.Clone(s.data)
	noBegin[3] ^= 1
	noSecond := slices.Clone(noBegin)
	noSecond[s.starts[1]+3] ^= 1
	for _, row := range []struct {
		name string
		seal *sealer
		data []byte
		want state
	}{
		{"another key", testSeal(t, 2), s.data, s.without(-1)},
		{"no key", nil, s.data, s.without(-1)},
		{"another key, torn", testSeal(t, 2), s.data[:len(s.data)-1], s.without(4)},
		{"no key, torn", nil, s.data[:len(s.data)-1], s.without(4)},
		{"another key, first header damaged", testSeal(t, 2), noBegin, s.without(-1)},
		{"no key, first header damaged", nil, noBegin, s.without(-1)},
		{"no key, two headers damaged", nil, noSecond, s.without(1)},
		{"another key, two headers damaged", testSeal(t, 2), noSecond, s.without(1)},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := modelWith(row.data)
			m.names[newName] = &inode{now: []byte("left")}
			j, err := openModel(m, "/journal", row.seal, quiet())
			if !errors.Is(err, ErrKey) || j != nil || !strings.Contains(err.Error(), "/journal") {
				t.Fatalf("error %v", err)
			}
			if len(m.ops) != 0 || !bytes.Equal(m.names[fileName].now, row.data) || !m.closed {
				t.Errorf("operations %v, closed %v", m.ops, m.closed)
			}
			expect(t, mustOpen(t, m, right), row.want)
		})
	}
}

// secrets are the texts that a sealed file must not contain.
var secrets = []Change{put("secret/default/password", "correct horse"), put("token/a", "battery staple"), del("config/gone-by-now")}

func showsSecrets(data []byte) bool {
	for _, c := range secrets {
		if bytes.Contains(data, []byte(c.Key)) || c.Value != nil && bytes.Contains(data, c.Value) {
			return true
		}
	}
	return false
}

func TestSealedFileShowsNothing(t *testing.T) {
	for name, seal := range map[string]*sealer{"plain": nil, "sealed": testSeal(t, 1)} {
		m := newModel()
		j := mustOpen(t, m, seal)
		mustWrite(t, j, put("config/gone-by-now", "x"))
		mustWrite(t, j, secrets...)
		if shows := showsSecrets(m.names[fileName].now); shows != (seal == nil) {
			t.Errorf("%s: shows names or values: %v", name, shows)
		}
	}
}

// TestSealingIsRandom checks that equal values are sealed to different bytes.
func TestSealingIsRandom(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, testSeal(t, 1))
	mustWrite(t, j, put("a", "12345678"), put("b", "12345678"))
	data := m.names[fileName].now
	size := 8 + nonceSize + tagSize
	a, b := data[j.entries["a"].offset:][:size], data[j.entries["b"].offset:][:size]
	if bytes.Equal(a[:nonceSize], b[:nonceSize]) || bytes.Equal(a[nonceSize:], b[nonceSize:]) {
		t.Errorf("%x and %x", a, b)
	}
}

func TestMigration(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, nil)
	mustWrite(t, j, put("config/gone-by-now", "x"), put("big", large(chunk, 1)))
	mustWrite(t, j, secrets...)
	want, newest := holds(t, j), j.Newest()
	m = m.restarted()

	seal := testSeal(t, 1)
	j, err := openOn(m, "/journal", seal, &Config{Log: quiet(), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, j, want)
	// It is sealed now, and not with the next Write.
	if showsSecrets(m.after(outages(0)[0]).names[fileName].now) {
		t.Error("the file shows names or values")
	}
	if !j.Newest().Equal(newest) {
		t.Errorf("newest went from %v to %v", newest, j.Newest())
	}
	if _, err := openModel(m.restarted(), "/journal", nil, quiet()); !errors.Is(err, ErrKey) {
		t.Errorf("without the key: %v", err)
	}
	mustWrite(t, j, put("a", "1"))
	expect(t, mustOpen(t, m.restarted(), seal), want.with(put("a", "1")))
}

// TestMigrationOnAFullDisk checks that pods start all the same, and that nothing is
// written in plain.
func TestMigrationOnAFullDisk(t *testing.T) {
	m := newModel()
	mustWrite(t, mustOpen(t, m, nil), put("a", "1"))
	m = m.restarted()
	m.limit = int64(len(m.names[fileName].now)) + 200
	log, warned := logged()
	j, err := openOn(m, "/journal", testSeal(t, 1), &Config{Log: log, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(warned, "rewrite journal before"); len(got) != 1 {
		t.Errorf("warnings %q", got)
	}
	expect(t, j, state{"a": "1"})
	if err := j.Write(put("a", "2")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	expect(t, j, state{"a": "1"})
	m.limit = 0
	mustWrite(t, j, put("secret/default/password", "correct horse"))
	if showsSecrets(m.names[fileName].now) {
		t.Error("the file shows names or values")
	}
	expect(t, mustOpen(t, m.restarted(), testSeal(t, 1)), state{"a": "1", "secret/default/password": "correct horse"})
}

// TestPlainBatchInASealedFile checks that a plain batch is rejected: it can be
// written without the key.
func TestPlainBatchInASealedFile(t *testing.T) {
	seal := testSeal(t, 1)
	s := newSample(t, seal)
	forged := newSample(t, nil)
	batch := forged.data[forged.starts[1]:forged.starts[2]]
	copy(batch[32:40], s.data[32:40]) // the file's id
	binary.LittleEndian.PutUint64(batch[16:], 100)
	mend(batch, 0)
	survives(t, "forged", slices.Concat(s.data, batch), seal, s.without(-1), 1)
}

// TestSealedBatchElsewhere checks that a sealed batch with correct checksums is
// rejected in another place, or with another value.
func TestSealedBatchElsewhere(t *testing.T) {
	seal := testSeal(t, 1)
	s := newSample(t, seal)
	t.Run("as a newer one", func(t *testing.T) {
		batch := slices.Clone(s.data[s.starts[1]:s.starts[2]])
		binary.LittleEndian.PutUint64(batch[16:], 100)
		mend(batch, 0)
		survives(t, "copied", slices.Concat(s.data, batch), seal, s.without(-1), 1)
	})
	t.Run("records in another order", func(t *testing.T) {
		m := newModel()
		j := mustOpen(t, m, seal)
		start := j.cur.size
		mustWrite(t, j, put("a", "1"), put("b", "2"))
		data := slices.Clone(m.names[fileName].now)
		payload := data[start+headerSize:]
		half := len(payload) / 2
		copy(payload, slices.Concat(payload[half:], payload[:half]))
		mend(data, int(start))
		survives(t, "swapped", data, seal, state{}, 1)
	})
	t.Run("a value of another record", func(t *testing.T) {
		m := newModel()
		j := mustOpen(t, m, seal)
		start := j.cur.size
		mustWrite(t, j, put("a", "1"), put("b", "2"))
		data := m.names[fileName].now
		size := int64(1 + seal.overhead())
		copy(data[j.entries["b"].offset:][:size], data[j.entries["a"].offset:][:size])
		mend(data, int(start))
		// Values are judged when they are read.
		j = mustOpen(t, m.restarted(), seal)
		if _, _, err := j.Read("b"); !errors.Is(err, ErrDamaged) {
			t.Errorf("read: %v", err)
		}
	})
}
