package journal

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrPlain means that a journal is not sealed although a key was given: anybody
// who can write to the disk may have put it there. Nothing on the disk was
// changed.
var ErrPlain = errors.New("the journal is not sealed, and a key is configured")

// ErrStale means that a sealed journal is older than its anchor, or that its
// anchor is gone. Nothing on the disk was changed.
var ErrStale = errors.New("the journal is an older copy")

// Anchor stores the generation of a journal outside of the journal's disk, so
// that write access to the disk is not enough to set the generation back. Its
// methods block on the device.
type Anchor interface {
	// Read returns the anchor's random id and generation. Bound reports
	// whether Advance was ever called. The error wraps fs.ErrNotExist if there
	// is no anchor.
	Read() (id [16]byte, generation uint64, bound bool, err error)
	// Begin creates an anchor with a new id. It is not bound yet. The error wraps
	// fs.ErrNotExist if no anchor is to be created automatically: the journal then
	// continues without one.
	Begin() (id [16]byte, generation uint64, err error)
	// Advance binds the anchor and raises its generation to the given one.
	Advance(generation uint64) error
}

// markPrefix is the prefix of the names that hold a file's generation. Write
// rejects keys with this prefix.
const markPrefix = "\x00generation/"

// generationMark is the generation in which a sealed file was written. It is stored in
// the name of a record, which is sealed with the file's id and the sequence.
type generationMark struct {
	id         [16]byte
	generation uint64 // 0 means none
	// last is the id of the file if this record ends the file's first rewrite
	// in its generation, else 0. A file with no records after this one has
	// never had another content in its generation.
	last uint64
}

// name encodes the mark as the name of a record.
func (m *generationMark) name() string {
	return fmt.Sprintf("%s%x/%d/%x", markPrefix, m.id, m.generation, m.last)
}

// parseMark decodes a name that generationMark.name encoded. It rejects any other form.
func parseMark(name string) (m generationMark, ok bool) {
	var id []byte
	if _, err := fmt.Sscanf(name, markPrefix+"%x/%d/%x", &id, &m.generation, &m.last); err != nil || len(id) != len(m.id) {
		return generationMark{}, false
	}
	m.id = [16]byte(id)
	return m, m.generation > 0 && m.name() == name
}

// anchorState is the state of a journal's anchor.
type anchorState struct {
	anchor Anchor         // nil without one
	mark   generationMark // of the next file
	// anchored is the generation that the anchor is known to have. A rewrite
	// raises it after the file is on the disk.
	anchored uint64
	bound    bool
	// firstRewrite is set if the next rewrite is the first of its generation.
	firstRewrite bool
	// intact is set if the file can stay as it is in this generation.
	intact bool
}

// checkAnchor compares the generation of a file with the anchor. It returns ErrStale
// if the file is older. It accepts an empty file, and with trust any file.
//
// The updates are ordered: the anchor is created, the file is written in the
// next generation, the anchor is raised to that generation. A power cut between
// two of them leaves a file that is not older than the anchor, or a file without
// a generation and an anchor that is not bound.
func (j *Journal) checkAnchor(r *replayed, trust bool) error {
	have := r.mark
	if r.key == 0 {
		have = generationMark{}
	}
	f := &j.anchorState
	if f.anchor == nil {
		return j.checkUnanchored(&have, trust, fs.ErrNotExist)
	}
	id, at, bound, err := f.anchor.Read()
	if errors.Is(err, fs.ErrNotExist) {
		if err := j.checkUnanchored(&have, trust, err); err != nil {
			return err
		}
		if id, at, err = f.anchor.Begin(); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				j.log.Warn("cannot create journal anchor", "error", err, "remedy", "fix the error; until then an older copy of the journal is accepted")
			}
			f.anchor = nil
			return nil
		}
	} else if err != nil {
		return fmt.Errorf("read journal anchor: %w", err)
	}
	same := have.generation > 0 && have.id == id
	switch {
	case trust:
	case have.generation == 0 && bound:
		return fmt.Errorf("%w: it was written before its anchor was made", ErrStale)
	case have.generation > 0 && !same:
		return fmt.Errorf("%w: it belongs to another anchor", ErrStale)
	case same && have.generation < at:
		return fmt.Errorf("%w: it has generation %d, its anchor has %d", ErrStale, have.generation, at)
	}
	f.anchored, f.bound = at, bound
	f.mark = generationMark{id: id, generation: at}
	if same {
		f.mark.generation = max(at, have.generation)
	}
	f.intact = same && have.generation >= at && have.last == r.file && !r.damaged
	if !f.intact {
		f.mark.generation++
		f.firstRewrite = true
	}
	return nil
}

// checkUnanchored checks a file whose anchor does not exist. It returns an error that wraps
// ErrStale and err if the file has a generation and is not trusted.
func (j *Journal) checkUnanchored(have *generationMark, trust bool, err error) error {
	if have.generation > 0 && !trust {
		return fmt.Errorf("%w: its anchor is gone: %w", ErrStale, err)
	}
	return nil
}

// advanceAnchor advances the anchor to the generation of the file, which is on the disk.
// If that fails, the next rewrite tries again. Until then an older copy is not
// detected, and no journal is rejected.
func (j *Journal) advanceAnchor() {
	f := &j.anchorState
	f.firstRewrite = false
	if f.anchor == nil || f.bound && f.anchored >= f.mark.generation {
		return
	}
	if err := f.anchor.Advance(f.mark.generation); err != nil {
		j.log.Warn("cannot advance journal anchor", "error", err, "generation", f.mark.generation)
		return
	}
	f.anchored, f.bound = f.mark.generation, true
}

// copyMark writes the file's generation, if it has one. A file has it at its
// beginning and at its end, so that damage to one sector does not destroy it.
func (j *Journal) copyMark(a *appender, next *openFile, end bool) error {
	f := &j.anchorState
	if f.anchor == nil || next.seal == nil {
		return nil
	}
	m := f.mark
	if end && f.firstRewrite {
		m.last = next.id
	}
	_, err := j.copyRecord(a, next, head{kind: kindPut, sum: hashOf(nil), name: m.name()}, nil)
	return err
}
