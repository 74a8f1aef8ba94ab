package journal

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// faults are the errors that a disk may return.
func faults(op string) map[string]fault {
	switch op {
	case "sync", "datasync", "syncdir":
		return map[string]fault{"input/output": {err: unix.EIO}}
	case "write":
		return map[string]fault{
			"no space":               {err: unix.ENOSPC},
			"quota after half of it": {err: unix.EDQUOT, half: true},
			"input/output after all": {err: unix.EIO, done: true},
		}
	default:
		return map[string]fault{
			"no space":               {err: unix.ENOSPC},
			"input/output after all": {err: unix.EIO, done: true},
		}
	}
}

// TestFaults makes each operation of the story fail, once or until the Write
// returns. The map must then be as before, on the disk and in memory, and the same
// Write must succeed once the fault is gone.
func TestFaults(t *testing.T) {
	twoTellings(t, func(t *testing.T, s story, seal *sealer) {
		whole := newModel()
		s.tell(whole, seal)
		for at, op := range whole.ops {
			for name, f := range faults(op) {
				for _, lasting := range []bool{false, true} {
					s.suffer(t, fmt.Sprintf("operation %d (%s), %s, lasting %v", at, op, name, lasting), at, f, lasting, seal)
				}
			}
		}
	})
}

func (s story) suffer(t *testing.T, what string, at int, f fault, lasting bool, seal *sealer) {
	t.Helper()
	m := newModel()
	m.fault = func(n int, op string) fault {
		if n == at || lasting && n > at {
			// What only a write can do, and what no sync can.
			sync := op == "sync" || op == "datasync" || op == "syncdir"
			return fault{err: f.err, half: f.half && op == "write", done: f.done && !sync}
		}
		return fault{}
	}
	j, err := openModel(m, "/journal", seal, quiet())
	if err != nil {
		if !errors.Is(err, f.err) || !strings.Contains(err.Error(), `open journal "/journal"`) {
			t.Fatalf("%s: open: %v", what, err)
		}
		m.fault = nil
		m = m.restarted()
		j = mustOpen(t, m, seal)
	}
	all := s.states
	for i, batch := range s.batches {
		before := len(m.ops)
		err := j.Write(batch...)
		if err != nil {
			if !errors.Is(err, f.err) || !strings.Contains(err.Error(), `changes to journal "/journal"`) {
				t.Fatalf("%s: batch %d: %v", what, i, err)
			}
			expect(t, j, all[i])
			m.fault = nil
			mayHold(t, what, m, seal, all[i], all[i+1])
			if err := j.Write(batch...); err != nil {
				t.Fatalf("%s: batch %d again: %v", what, i, err)
			}
		}
		expect(t, j, all[i+1])
		if len(m.ops) > at && before <= at+10 {
			// This one met the fault, or came after it.
			mayHold(t, what, m, seal, all[i+1])
		}
		if lasting && len(m.ops) > at {
			m.fault = nil
		}
	}
	last := all[len(all)-1]
	m = m.restarted()
	expect(t, mustOpen(t, m, seal), last)
	if _, left := m.names[newName]; left {
		t.Errorf("%s: %s is left", what, newName)
	}
}

// mayHold fails unless a power cut at this point would leave a journal with one of
// the states.
func mayHold(t *testing.T, what string, m *model, seal *sealer, allowed ...state) {
	t.Helper()
	for _, o := range outages(1) {
		got := holds(t, mustOpen(t, m.after(o), seal))
		ok := false
		for _, s := range allowed {
			ok = ok || maps.Equal(got, s)
		}
		if !ok {
			t.Fatalf("%s, %s: there is %v", what, o.name, short(got))
		}
	}
}

// TestFullDisk fills a disk, writes, rewrites, and frees it again.
func TestFullDisk(t *testing.T) {
	m := newModel()
	log, warned := logged()
	j, err := openModel(m, "/journal", nil, log)
	if err != nil {
		t.Fatal(err)
	}
	want := state{}
	write := func(c Change) {
		t.Helper()
		mustWrite(t, j, c)
		want = want.with(c)
		expect(t, j, want)
	}
	write(put("c", large(60<<10, 0)))
	write(put("a", large(30<<10, 0)))
	write(put("a", large(30<<10, 1)))
	write(put("a", large(30<<10, 2)))
	// There is room for some batches and none for a second file.
	m.limit = j.cur.size + 30<<10
	for i := range byte(4) {
		write(put("a", large(5000, 3+i)))
	}
	if got := lines(warned, "cannot compact journal"); len(got) != 1 || !strings.Contains(got[0], "no space left") {
		t.Errorf("warnings %q", got)
	}
	size := j.cur.size
	for range 3 {
		if err := j.Write(put("b", large(20<<10, 9))); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("write to a full disk: %v", err)
		}
		if got := len(m.names[fileName].now); int64(got) != size {
			t.Errorf("the file has %d bytes, had %d", got, size)
		}
		expect(t, j, want)
		expect(t, mustOpen(t, m.restarted(), nil), want)
	}
	m.limit = 0
	for i := range byte(8) {
		write(put("b", large(20<<10, 10+i)))
	}
	if j.cur.size > 200<<10 { // not rewritten, it would have 330
		t.Errorf("the file has %d bytes", j.cur.size)
	}
	if got := lines(warned, ""); len(got) != 1 {
		t.Errorf("warnings %q", got)
	}
	expect(t, mustOpen(t, m.restarted(), nil), want)
}

// TestTidyingIsTriedAgainLater checks that on a disk that is nearly full not every
// Write copies the file in vain.
func TestTidyingIsTriedAgainLater(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, nil)
	tried := 0
	m.fault = func(_ int, op string) fault {
		if op == "create" {
			tried++
			return fault{err: unix.ENOSPC}
		}
		return fault{}
	}
	for i := range byte(100) {
		mustWrite(t, j, put("a", large(5<<10, i)))
	}
	// 500 KiB are written, and the first 70 of them are no reason.
	if tried < 2 || tried > 8 {
		t.Errorf("the file was to be rewritten %d times", tried)
	}
	m.fault = nil
	for i := range byte(14) {
		mustWrite(t, j, put("a", large(5<<10, 100+i)))
	}
	if j.cur.size > 80<<10 {
		t.Errorf("the file has %d bytes", j.cur.size)
	}
}

// TestFailedSyncIsNotTrusted has a disk whose second fsync succeeds although the
// data are lost.
func TestFailedSyncIsNotTrusted(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		m := newModel()
		j := mustOpen(t, m, seal)
		mustWrite(t, j, put("a", "1"))
		failed := 0
		m.fault = func(_ int, op string) fault {
			if op == "datasync" && failed == 0 {
				failed++
				return fault{err: unix.EIO}
			}
			return fault{}
		}
		ops := len(m.ops)
		// The second file is sound, so the Write is.
		mustWrite(t, j, put("a", "2"))
		if got := strings.Join(m.ops[ops:], " "); got != "write datasync truncate create write sync rename syncdir write datasync" {
			t.Errorf("operations: %s", got)
		}
		expect(t, mustOpen(t, m.after(outages(0)[0]), seal), state{"a": "2"})

		// Where there is no second file either, nothing is written to the
		// first any more.
		m.fault = func(_ int, op string) fault {
			if op == "write" {
				return fault{}
			}
			return fault{err: unix.EIO}
		}
		if err := j.Write(put("a", "3")); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		ops = len(m.ops)
		if err := j.Write(put("a", "3")); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		for _, op := range m.ops[ops:] {
			if op == "write" || op == "datasync" {
				t.Errorf("operations %v", m.ops[ops:])
			}
		}
		expect(t, j, state{"a": "2"})
		m.fault = nil
		mustWrite(t, j, put("a", "3"))
		expect(t, mustOpen(t, m.after(outages(0)[0]), seal), state{"a": "3"})
	})
}

// TestTailThatCannotBeCutOff checks that a file with part of a batch is not written
// to any more.
func TestTailThatCannotBeCutOff(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, nil)
	mustWrite(t, j, put("a", "1"))
	ops := len(m.ops)
	m.fault = func(n int, op string) fault {
		return map[int]fault{ops: {err: unix.ENOSPC, half: true}, ops + 1: {err: unix.EIO}}[n]
	}
	mustWrite(t, j, put("a", "2"))
	if got := strings.Join(m.ops[ops:], " "); got != "write truncate create write sync rename syncdir write datasync" {
		t.Errorf("operations: %s", got)
	}
	expect(t, mustOpen(t, m.after(outages(0)[0]), nil), state{"a": "2"})
}

// TestUnsureAtOpen makes the sync in Open fail: data that a dead process had not
// synced must not count as stored because they can be read.
func TestUnsureAtOpen(t *testing.T) {
	for _, op := range []string{"sync", "syncdir"} {
		t.Run(op, func(t *testing.T) {
			m := newModel()
			j := mustOpen(t, m, nil)
			mustWrite(t, j, put("a", "1"))
			m.fault = func(_ int, op string) fault { return fault{cut: op == "write"} }
			if err := j.Write(put("a", "2")); err == nil {
				t.Fatal("no error")
			}
			m = m.restarted()
			m.fault = func(_ int, now string) fault {
				if now == op {
					return fault{err: unix.EIO}
				}
				return fault{}
			}
			log, warned := logged()
			j, err := openModel(m, "/journal", nil, log)
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(warned, "rewrite journal before"); len(got) != 1 {
				t.Errorf("warnings %q", got)
			}
			expect(t, j, state{"a": "2"})
			if err := j.Write(put("a", "2")); !errors.Is(err, unix.EIO) {
				t.Fatalf("write: %v", err)
			}
			m.fault = nil
			mustWrite(t, j, put("a", "2"))
			expect(t, mustOpen(t, m.after(outages(0)[0]), nil), state{"a": "2"})
			ops := len(m.ops)
			mustWrite(t, j, put("a", "2"))
			if len(m.ops) != ops {
				t.Errorf("operations %v", m.ops[ops:])
			}
		})
	}
}

// TestReadOnlyDisk reads from a card that the kernel has remounted read-only.
func TestReadOnlyDisk(t *testing.T) {
	forms(t, func(t *testing.T, seal *sealer) {
		m := newModel()
		mustWrite(t, mustOpen(t, m, seal), put("a", "1"))
		m = m.restarted()
		m.names[fileName].write([]byte("torn"), int64(len(m.names[fileName].now)))
		m.readOnly = true
		log, warned := logged()
		j, err := openModel(m, "/journal", seal, log)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(warned, "read-only disk"); len(got) != 1 {
			t.Errorf("warnings %q", got)
		}
		expect(t, j, state{"a": "1"})
		mustWrite(t, j, put("a", "1"))
		if err := j.Write(put("a", "2")); !errors.Is(err, unix.EROFS) {
			t.Errorf("write: %v", err)
		}
		m.readOnly = false
		mustWrite(t, j, put("a", "2"))
		expect(t, mustOpen(t, m.after(outages(0)[0]), seal), state{"a": "2"})

		m = newModel()
		m.readOnly = true
		if _, err := openModel(m, "/journal", seal, quiet()); !errors.Is(err, unix.EROFS) || !m.closed {
			t.Errorf("open of nothing: %v", err)
		}
	})
}

// TestUnreadableDisk checks that nothing is lost if a disk cannot be read for a
// while.
func TestUnreadableDisk(t *testing.T) {
	m := newModel()
	j := mustOpen(t, m, nil)
	for i := range byte(3) {
		mustWrite(t, j, put("a", large(40<<10, i)))
	}
	m.readErr = unix.EIO
	if _, _, err := j.Read("a"); !errors.Is(err, unix.EIO) || errors.Is(err, ErrDamaged) {
		t.Errorf("read: %v", err)
	}
	// To tidy up is not possible, to append is.
	mustWrite(t, j, put("b", large(40<<10, 9)))
	ops := len(m.ops)
	if _, err := openModel(m, "/journal", nil, quiet()); !errors.Is(err, unix.EIO) || !m.closed {
		t.Errorf("open: %v", err)
	}
	if len(m.ops) != ops {
		t.Errorf("operations %v", m.ops[ops:])
	}
	m.readErr = nil
	expect(t, mustOpen(t, m.restarted(), nil), state{"a": large(40<<10, 2), "b": large(40<<10, 9)})
}
