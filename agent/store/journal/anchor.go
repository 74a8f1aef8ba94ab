package journal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ErrPlain reports that a journal is not sealed although a key was given:
// whoever can write to the disk can have put it there. Nothing on the disk was
// changed.
var ErrPlain = errors.New("the journal is not sealed, and a key is configured")

// ErrStale reports that a sealed journal is older than its anchor, or that its
// anchor is gone. Nothing on the disk was changed.
var ErrStale = errors.New("the journal is an older copy")

// Anchor keeps the generation of a journal where whoever can write to the
// journal's disk cannot set it back. Its methods block on the device.
type Anchor interface {
	// Read returns the anchor's random id and generation. Bound reports
	// whether Advance was ever called. The error wraps fs.ErrNotExist if there
	// is no anchor.
	Read() (id [16]byte, generation uint64, bound bool, err error)
	// Begin makes an anchor with a new id; it is not bound yet. The error wraps
	// fs.ErrNotExist if none is wanted here.
	Begin() (id [16]byte, generation uint64, err error)
	// Advance binds the anchor and raises its generation to the one given.
	Advance(generation uint64) error
}

// marked is the prefix of the names that hold a file's generation. No key of a
// caller may have it.
const marked = "\x00generation/"

// mark is the generation that a sealed file was written in. Its record has it
// in the name, which is sealed with the file's id and the sequence.
type mark struct {
	id         [16]byte
	generation uint64 // 0 is none
	// last is the id of the file whose first rewrite in its generation this
	// record ends. A file that nothing follows it in has only ever had this
	// content in its generation. It is 0 in other records.
	last uint64
}

// name is the mark as the name of a record.
func (m *mark) name() string {
	return fmt.Sprintf("%s%x/%d/%x", marked, m.id, m.generation, m.last)
}

// parseMark reads what name has written, and nothing else.
func parseMark(name string) (m mark, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, marked), "/")
	if len(parts) != 3 {
		return mark{}, false
	}
	id, err := hex.DecodeString(parts[0])
	if err != nil || len(id) != len(m.id) {
		return mark{}, false
	}
	copy(m.id[:], id)
	if m.generation, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return mark{}, false
	}
	if m.last, err = strconv.ParseUint(parts[2], 16, 64); err != nil {
		return mark{}, false
	}
	return m, m.generation > 0 && m.name() == name
}

// freshness is what a journal knows of its anchor.
type freshness struct {
	anchor Anchor // nil without one
	mark   mark   // that the next file gets
	// anchored is the generation that the anchor has for sure; a rewrite
	// raises it after the file is on the disk.
	anchored uint64
	bound    bool
	// opening reports that the next rewrite is the first of its generation.
	opening bool
	// intact reports that the file can stay as it is in this generation.
	intact bool
}

// resume compares what a file holds with the anchor. It fails with ErrStale if
// the file is older. A file that holds nothing, and one that is to be trusted
// once, is not judged.
//
// The order of all updates is: the anchor begins, the file is written in the
// next generation, the anchor is raised to that. A power cut between two of
// these leaves a file that is not older than the anchor, or one without a
// generation beside an anchor that is not bound.
func (j *Journal) resume(r *replayed, trust bool) error {
	have := r.mark
	if r.key == 0 {
		have = mark{}
	}
	f := &j.fresh
	if f.anchor == nil {
		return j.unanchored(&have, trust, fs.ErrNotExist)
	}
	id, at, bound, err := f.anchor.Read()
	if errors.Is(err, fs.ErrNotExist) {
		if err := j.unanchored(&have, trust, err); err != nil {
			return err
		}
		if id, at, err = f.anchor.Begin(); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				j.log.Warn("journal has no anchor", "error", err, "remedy", "see to what the error names; until then an older copy of the journal is taken for the journal")
			}
			f.anchor = nil
			return nil
		}
	} else if err != nil {
		return fmt.Errorf("read the anchor of the journal: %w", err)
	}
	same := have.generation > 0 && have.id == id
	switch {
	case trust:
	case have.generation == 0 && bound:
		return fmt.Errorf("%w: it was written before its anchor was made", ErrStale)
	case have.generation > 0 && !same:
		return fmt.Errorf("%w: it belongs to another anchor", ErrStale)
	case same && have.generation < at:
		return fmt.Errorf("%w: its generation is %d, and its anchor has %d", ErrStale, have.generation, at)
	}
	f.anchored, f.bound = at, bound
	f.mark = mark{id: id, generation: at}
	if same {
		f.mark.generation = max(at, have.generation)
	}
	f.intact = same && have.generation >= at && have.last == r.file && !r.damaged
	if !f.intact {
		f.mark.generation++
		f.opening = true
	}
	return nil
}

// unanchored judges a file whose anchor is not there.
func (j *Journal) unanchored(have *mark, trust bool, err error) error {
	if have.generation > 0 && !trust {
		return fmt.Errorf("%w: its anchor is gone: %w", ErrStale, err)
	}
	return nil
}

// raise brings the anchor to the generation of the file, which is on the disk.
// What cannot be raised is tried again with the next rewrite: until then an
// older copy is not found out, and no journal is refused.
func (j *Journal) raise() {
	f := &j.fresh
	f.opening = false
	if f.anchor == nil || f.bound && f.anchored >= f.mark.generation {
		return
	}
	if err := f.anchor.Advance(f.mark.generation); err != nil {
		j.log.Warn("anchor of journal could not be raised", "error", err, "generation", f.mark.generation)
		return
	}
	f.anchored, f.bound = f.mark.generation, true
}

// copyMark writes the file's generation, if it has one. It stands at the
// beginning of a file and at its end, so that damage to one sector does not
// take it.
func (j *Journal) copyMark(a *appender, next *content, end bool) error {
	f := &j.fresh
	if f.anchor == nil || next.seal == nil {
		return nil
	}
	m := f.mark
	if end && f.opening {
		m.last = next.id
	}
	_, err := j.copyRecord(a, next, head{kind: kindPut, sum: sumOf(nil), name: m.name()}, nil)
	return err
}
