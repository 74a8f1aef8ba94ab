package journal

import (
	"fmt"
	"maps"
	"testing"
)

// story is a sequence of batches, from an empty journal on, and the state of the
// journal before and after each.
type story struct {
	batches [][]Change
	states  []state
}

func newStory(batches ...[]Change) story {
	s := story{batches, []state{{}}}
	for i, batch := range batches {
		s.states = append(s.states, s.states[i].with(batch...))
	}
	return s
}

// stories cover all that a Write can do: one record and several, deletions, values
// of many sectors, files that are rewritten, a batch in pieces.
func stories() map[string]story {
	return map[string]story{
		"small and large": newStory(
			[]Change{put("pod/a", "spec"), put("config/a", large(700, 1)), put("secret/a", "s")},
			[]Change{put("pod/b", large(1300, 2))},
			[]Change{del("config/a"), put("secret/a", "t")},
			[]Change{put("big", large(40<<10, 3))},
			[]Change{put("big", large(40<<10, 4)), put("fact/a", "1")},
			[]Change{put("big", large(40<<10, 5)), del("pod/b")},
			[]Change{put("big", large(40<<10, 6)), put("fact/a", "2")},
			[]Change{put("fact/a", "3")},
			[]Change{del("big")},
			[]Change{put("fact/a", "4"), put("pod/c", large(100, 7))},
		),
		"in pieces": newStory(
			[]Change{put("a", "1"), put("huge", large(1000, 0))},
			[]Change{put("b", large(600, 1)), put("huge", large(chunk-100, 2)), put("a", "2")},
			[]Change{del("huge")},
			[]Change{put("a", "3")},
		),
	}
}

// tellings runs a test for each story, plain and sealed.
func tellings(t *testing.T, test func(t *testing.T, s story, seal *sealer)) {
	for name, s := range stories() {
		t.Run(name, func(t *testing.T) {
			forms(t, func(t *testing.T, seal *sealer) { test(t, s, seal) })
		})
	}
}

// twoTellings is tellings for slow tests, whose result does not depend on the
// content of the file.
func twoTellings(t *testing.T, test func(t *testing.T, s story, seal *sealer)) {
	t.Run("sealed", func(t *testing.T) { test(t, stories()["small and large"], testSeal(t, 1)) })
	t.Run("plain", func(t *testing.T) { test(t, stories()["in pieces"], nil) })
}

// tell writes the story and returns how many batches were acknowledged before the
// first one that was not.
func (s story) tell(m *model, seal *sealer) int {
	j, err := openModel(m, "/journal", seal, quiet())
	if err != nil {
		return 0
	}
	for i, batch := range s.batches {
		if j.Write(batch...) != nil {
			return i
		}
	}
	return len(s.batches)
}

// stands fails unless a journal that is opened on the disk holds the state after
// acked batches, or one more, and can be written to so that the write survives a
// power cut.
func (s story) stands(t *testing.T, what string, m *model, seal *sealer, acked int) {
	t.Helper()
	all := s.states
	// A migration that was interrupted is made again.
	j, err := openOn(m, "/journal", seal, &Config{Log: quiet(), Migrate: true})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := holds(t, j)
	if !maps.Equal(got, all[acked]) && (acked+1 >= len(all) || !maps.Equal(got, all[acked+1])) {
		t.Fatalf("%s: %d batches acknowledged, and there is %v", what, acked, short(got))
	}
	mustWrite(t, j, put("after", what))
	expect(t, mustOpen(t, m.after(outages(0)[0]), seal), got.with(put("after", what)))
}

// TestPowerCut cuts the power after each operation of the story, for all possible
// outcomes of writes that were not synced.
func TestPowerCut(t *testing.T) {
	tellings(t, func(t *testing.T, s story, seal *sealer) {
		whole := newModel()
		if s.tell(whole, seal) != len(s.batches) {
			t.Fatal("the story does not come to its end")
		}
		rewritten := 0
		for _, op := range whole.ops {
			if op == "rename" {
				rewritten++
			}
		}
		if rewritten < 2 { // the first makes the file
			t.Fatalf("the story rewrites its file %d times", rewritten)
		}
		for cut := range whole.ops {
			m := newModel()
			m.fault = func(n int, _ string) fault { return fault{cut: n == cut} }
			acked := s.tell(m, seal)
			for _, o := range outages(8) {
				what := fmt.Sprintf("cut after %d (%s), %s", cut, m.ops[cut], o.name)
				s.stands(t, what, m.after(o), seal, acked)
			}
			// The process alone died, and the power went later: what the next
			// one found and wrote is there.
			next := m.restarted()
			j := mustOpen(t, next, seal)
			want := holds(t, j)
			for _, change := range []Change{put("after", "1"), put("after", "2")} {
				for _, o := range outages(2) {
					expect(t, mustOpen(t, next.after(o), seal), want)
				}
				mustWrite(t, j, change)
				want = want.with(change)
			}
		}
	})
}

// TestPowerCutInRecovery cuts the power a second time while the journal is
// opened and repaired.
func TestPowerCutInRecovery(t *testing.T) {
	twoTellings(t, func(t *testing.T, s story, seal *sealer) {
		whole := newModel()
		s.tell(whole, seal)
		for cut, op := range whole.ops {
			if op == "sync" || op == "datasync" || op == "syncdir" {
				continue // the next Open finds what it finds after the one before
			}
			first := newModel()
			first.fault = func(n int, _ string) fault { return fault{cut: n == cut} }
			acked := s.tell(first, seal)
			for _, before := range outages(2) {
				for again := range 6 {
					second := first.after(before)
					second.fault = func(n int, _ string) fault { return fault{cut: n == again} }
					if j, err := openModel(second, "/journal", seal, quiet()); err == nil {
						// What was lost by the cut is not to come back, so the
						// same write is made again.
						_ = j.Write(s.batches[min(acked, len(s.batches)-1)]...)
					}
					if !second.off {
						break // it takes no more operations
					}
					for _, o := range outages(2) {
						what := fmt.Sprintf("cut after %d (%s) and %d, %s, %s", cut, first.ops[cut], again, before.name, o.name)
						s.stands(t, what, second.after(o), seal, acked)
					}
				}
			}
		}
	})
}

// TestPowerCutInMigration cuts the power while a plain journal is sealed.
func TestPowerCutInMigration(t *testing.T) {
	s := stories()["small and large"]
	plain := newModel()
	acked := s.tell(plain, nil)
	seal := testSeal(t, 1)
	for cut := 0; ; cut++ {
		m := plain.after(outages(0)[0])
		m.fault = func(n int, _ string) fault { return fault{cut: n == cut} }
		_, err := openOn(m, "/journal", seal, &Config{Log: quiet(), Migrate: true})
		if !m.off {
			if err != nil || cut < 5 {
				t.Fatalf("migration took %d operations: %v", cut, err)
			}
			return
		}
		for _, o := range outages(8) {
			s.stands(t, fmt.Sprintf("cut after %d (%s), %s", cut, m.ops[cut], o.name), m.after(o), seal, acked)
		}
	}
}
