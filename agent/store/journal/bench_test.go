package journal

import (
	"fmt"
	"strconv"
	"testing"
)

// benchForms runs a benchmark on a plain and on a sealed journal on a disk.
func benchForms(b *testing.B, bench func(b *testing.B, c Config)) {
	b.Run("plain", func(b *testing.B) { bench(b, Config{Dir: b.TempDir(), Log: quiet()}) })
	b.Run("sealed", func(b *testing.B) { bench(b, Config{Dir: b.TempDir(), Log: quiet(), Key: testKey(1)}) })
}

func benchOpen(b *testing.B, c Config) *Journal {
	b.Helper()
	j, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	return j
}

// fill writes the values of a board with twenty pods: their specs and the objects
// that they refer to.
func fill(b *testing.B, j *Journal) {
	b.Helper()
	for pod := range 20 {
		var changes []Change
		for i := range 10 {
			changes = append(changes, put(fmt.Sprintf("pod/%d/%d", pod, i), large(2000, byte(i))))
		}
		mustWrite(b, j, changes...)
	}
}

// BenchmarkWrite measures a change of 2 kB, including the rewrites that such
// changes cause and the time of the disk.
func BenchmarkWrite(b *testing.B) {
	benchForms(b, func(b *testing.B, c Config) {
		j := benchOpen(b, c)
		fill(b, j)
		values := [2][]byte{[]byte(large(2000, 1)), []byte(large(2000, 2))}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := j.Write(Change{"pod/3/1", values[i%2]}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteUnchanged measures a Write of values that are stored already.
func BenchmarkWriteUnchanged(b *testing.B) {
	j := benchOpen(b, Config{Dir: b.TempDir(), Log: quiet()})
	change := put("a", large(2000, 1))
	mustWrite(b, j, change)
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Write(change); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	benchForms(b, func(b *testing.B, c Config) {
		j := benchOpen(b, c)
		fill(b, j)
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := j.Read("pod/3/1"); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}

// BenchmarkOpen measures the Open at a start: 200 records, 400 kB.
func BenchmarkOpen(b *testing.B) {
	benchForms(b, func(b *testing.B, c Config) {
		j := benchOpen(b, c)
		fill(b, j)
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			j, err := Open(c)
			if err != nil {
				b.Fatal(err)
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRewrite measures a rewrite of those records, without the disk.
func BenchmarkRewrite(b *testing.B) {
	forms := map[string]*sealer{"plain": nil, "sealed": testSeal(b, 1)}
	for name, seal := range forms {
		b.Run(name, func(b *testing.B) {
			m := newModel()
			j := mustOpen(b, m, seal)
			fill(b, j)
			b.ReportAllocs()
			for b.Loop() {
				if err := j.rewrite(); err != nil {
					b.Fatal(err)
				}
				m.ops, m.pending = m.ops[:0], m.pending[:0]
			}
		})
	}
}

// TestAllocations bounds the allocations of frequent operations.
func TestAllocations(t *testing.T) {
	j, err := Open(Config{Dir: t.TempDir(), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	changes := []Change{put("a", large(2000, 1))}
	values := [][]byte{[]byte(large(2000, 2)), []byte(large(2000, 3))}
	mustWrite(t, j, changes...)
	i := 0
	for _, row := range []struct {
		name string
		most float64
		run  func() error
	}{
		{"unchanged", 0, func() error { return j.Write(changes...) }},
		{"changed", 12, func() error {
			i++
			return j.Write(Change{"b", values[i%2]})
		}},
		{"read", 8, func() error {
			_, _, err := j.Read("a")
			return err
		}},
	} {
		got := testing.AllocsPerRun(20, func() {
			if err := row.run(); err != nil {
				t.Fatal(err)
			}
		})
		if got > row.most {
			t.Errorf("%s: %s allocations, at most %s", row.name, strconv.FormatFloat(got, 'f', 1, 64), strconv.FormatFloat(row.most, 'f', 0, 64))
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
