package diskusage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

const (
	// shares is how many trees may take all of the entries without being big
	// ones.
	shares = 8
	// endless ends a walk that would not end by itself, since files are made,
	// or moved ahead of it, faster than it goes.
	endless = 4 << 20
)

// walk takes turns with the trees: first those that are not big, by how long
// they have waited, then one big one after the other. One that is not done
// goes on at the next look, before another big one begins. While there are big
// ones, a quarter of entries and time is theirs.
func (l *look) walk(ctx context.Context) {
	small, big := l.waiting()
	left, whole := l.entries, l.cfg.share()
	begun := time.Now()
	end := begun.Add(l.time)
	reserve, stop := 0, until(ctx, end)
	if len(big) > 0 {
		reserve, stop = left/4, until(ctx, begun.Add(l.time*3/4))
	}
	for _, t := range small {
		most := min(whole, left-reserve)
		if most <= 0 || stop() {
			break
		}
		left -= l.step(ctx, t, most, stop)
		if t.walk != nil {
			t.big = most == whole && !stop()
			big = append(big, t)
		}
	}
	stop = until(ctx, end)
	for _, t := range big {
		if left <= 0 || stop() {
			break
		}
		left -= l.step(ctx, t, left, stop)
	}
	l.known.big = nil
	for _, t := range big {
		// One walk is kept at most.
		switch {
		case t.walk == nil:
		case l.known.big == nil:
			l.known.big = t
		default:
			t.walk.Drop()
			t.walk = nil
		}
	}
}

// share is how many entries a tree may take without being a big one.
func (c *Config) share() int { return max(c.Entries/shares, 1) }

// until says whether a time has come, or ctx ended.
func until(ctx context.Context, end time.Time) func() bool {
	return func() bool { return ctx.Err() != nil || !time.Now().Before(end) }
}

// waiting are the trees, those that have waited longest first; a big one whose
// walk goes on is before all.
func (l *look) waiting() (small, big []*tree) {
	small = make([]*tree, 0, len(l.known.trees))
	for _, t := range l.known.trees {
		if t.big || t == l.known.big {
			big = append(big, t)
		} else {
			small = append(small, t)
		}
	}
	older := func(a, b *tree) int { return a.at.Compare(b.at) }
	slices.SortFunc(small, older)
	slices.SortFunc(big, func(a, b *tree) int {
		switch {
		case a == l.known.big:
			return -1
		case b == l.known.big:
			return 1
		}
		return older(a, b)
	})
	return small, big
}

// step goes on with the walk of a tree, and answers how many entries that
// took. A walk that does not come back in time is given up.
func (l *look) step(ctx context.Context, t *tree, entries int, stop func() bool) (took int) {
	walk := t.walk
	t.walk = nil
	if walk == nil {
		if walk, l.spare = l.spare, nil; walk == nil {
			walk = &Walk{}
		}
	}
	walk.Careful = t.careful
	var done bool
	var err error
	if t.system.local {
		took, done, err = l.walker.Measure(walk, t.place, entries, stop)
	} else {
		took, done, err = l.stepBeside(ctx, walk, t, entries, stop)
	}
	if errors.Is(err, errLate) {
		return 0
	}
	t.now = time.Now()
	switch {
	case err != nil:
		walk.Drop()
		t.at, t.usage = time.Time{}, Usage{}
		if !errors.Is(err, fs.ErrNotExist) {
			l.tell(t, err)
		}
		return took + 1
	case !done && walk.Entries() < l.endless:
		t.walk = walk
		return took
	}
	t.at, t.usage = t.now, walk.Usage()
	t.big = walk.Entries() > l.cfg.share()
	if !done {
		err = errEndless
	} else if err = walk.Err(); err == nil {
		t.told = false
	}
	if err != nil {
		l.tell(t, err)
	}
	walk.Drop()
	*walk = Walk{}
	l.spare = walk
	return took
}

var errLate = errors.New("the file system does not answer")

// stepBeside is a step that may hang. If it does, whatever it still does is its
// own: the walk, too.
func (l *look) stepBeside(ctx context.Context, walk *Walk, t *tree, entries int, stop func() bool) (int, bool, error) {
	var took int
	var done bool
	var err error
	place := t.place
	if !l.answers(ctx, t.system, func() { took, done, err = new(Walker).Measure(walk, place, entries, stop) }) {
		return 0, false, errLate
	}
	return took, done, err
}

var errEndless = errors.New("it has more files than are counted")

// tell logs once for each tree why its figures are not right.
func (l *look) tell(t *tree, err error) {
	if !t.told {
		t.told = true
		l.cfg.Log.Warn("what a pod has on a disk is not known to the full", "root", t.place.Root, "path", t.place.Path, "error", err)
	}
}
