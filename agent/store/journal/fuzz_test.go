package journal

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// FuzzOpen opens arbitrary bytes. With mended, the checksums of everything that has
// the form of a batch are corrected, so that the code behind them is reached as
// well.
func FuzzOpen(f *testing.F) {
	for _, seal := range []*sealer{nil, testSeal(f, 1)} {
		s := newSample(f, seal)
		for _, sealed := range []bool{false, true} {
			f.Add(s.data, sealed, false)
			f.Add(s.data[:len(s.data)-7], sealed, true)
			f.Add(slices.Concat(s.data[:s.starts[2]], s.data[s.starts[2]+5:]), sealed, false)
		}
	}
	f.Add([]byte{}, false, false)
	f.Fuzz(func(t *testing.T, data []byte, sealed, mended bool) {
		var seal *sealer
		if sealed {
			seal = testSeal(t, 1)
		}
		if mended {
			data = slices.Clone(data)
			for at := 0; at+headerSize <= len(data); at++ {
				if bytes.HasPrefix(data[at:], magic) {
					mend(data, at)
				}
			}
		}
		m := modelWith(data)
		j, err := openModel(m, "/journal", seal, quiet())
		if errors.Is(err, ErrKey) || errors.Is(err, ErrVersion) || errors.Is(err, ErrPlain) || errors.Is(err, ErrStale) {
			if !bytes.Equal(m.names[fileName].now, data) {
				t.Fatal("the file was changed")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		// What somebody wrote with right sums may still be no value.
		want := make(state)
		var unreadable []Change
		for _, key := range j.Keys("") {
			value, _, err := j.Read(key)
			switch {
			case errors.Is(err, ErrDamaged):
				unreadable = append(unreadable, del(key))
			case err != nil:
				t.Fatal(err)
			default:
				want[key] = string(value)
			}
		}
		mustWrite(t, j, unreadable...)
		expect(t, j, want)
		mustWrite(t, j, put("k", "v"))
		want = want.with(put("k", "v"))
		expect(t, j, want)
		expect(t, mustOpen(t, m.restarted(), seal), want)
		expect(t, mustOpen(t, m.after(outages(0)[0]), seal), want)
	})
}

// FuzzWrite compares a journal with a map. Three bytes are a step: the operation,
// the key, and the size of the value.
func FuzzWrite(f *testing.F) {
	f.Add([]byte("0a10b20a30c4"), false)
	f.Add([]byte{0, 1, 255, 0, 1, 254, 1, 2, 253, 0, 1, 252, 3, 0, 0, 2, 1, 0, 4, 0, 0}, true)
	f.Add(bytes.Repeat([]byte{0, 1, 255, 0, 1, 254}, 20), true)
	f.Fuzz(func(t *testing.T, steps []byte, sealed bool) {
		var seal *sealer
		if sealed {
			seal = testSeal(t, 1)
		}
		m := newModel()
		j := mustOpen(t, m, seal)
		want := make(state)
		var batch []Change
		flush := func() {
			mustWrite(t, j, batch...)
			want = want.with(batch...)
			batch = nil
		}
		for number := 0; len(steps) >= 3 && number < 200; number++ {
			what, key, size := steps[0]%6, string('a'+rune(steps[1]%8)), int(steps[2])*int(steps[2])/8
			steps = steps[3:]
			switch what {
			case 0:
				batch = append(batch, put(key, large(size, byte(number))))
				flush()
			case 1:
				batch = append(batch, put(key, large(size, byte(number))))
			case 2:
				batch = append(batch, del(key))
			case 3:
				flush()
			case 4:
				j = mustOpen(t, m.restarted(), seal)
				batch = nil
			case 5:
				m = m.after(outages(0)[0])
				j = mustOpen(t, m, seal)
				batch = nil
			}
			if got, ok, err := j.Read(key); err != nil || string(got) != want[key] || ok != (want[key] != "" || has(want, key)) {
				t.Fatalf("step %d: %q, %v, %v", number, got, ok, err)
			}
		}
		flush()
		expect(t, j, want)
		expect(t, mustOpen(t, m.after(outages(0)[0]), seal), want)
		if dead := j.cur.size - openingSize(seal) - j.live; dead > max(j.live, minDeadBytes) {
			t.Errorf("%d dead bytes beside %d", dead, j.live)
		}
		live := int64(0)
		for name, e := range j.entries {
			live += e.stored(name, seal)
		}
		if j.live != live {
			t.Errorf("live is %d, want %d", j.live, live)
		}
	})
}

func has(s state, key string) bool {
	_, ok := s[key]
	return ok
}
