package diskusage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

const (
	// shares is how many trees may use up all entries without being big ones.
	shares = 8
	// endless is the number of entries after which a walk is ended: one that may
	// never finish, because files are created, or moved ahead of it, faster than it
	// proceeds.
	endless = 4 << 20
)

// walk walks the trees: first those that are not big, longest unmeasured first, then
// the big ones one after the other. An unfinished walk of a big tree continues at the
// next measurement, before another big one starts. If there are big trees, a quarter
// of the entries and of the time is reserved for them.
func (l *measurement) walk(ctx context.Context) {
	small, big := l.queue()
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
	l.known.unfinished = nil
	for _, t := range big {
		// At most one unfinished walk is kept.
		switch {
		case t.walk == nil:
		case l.known.unfinished == nil:
			l.known.unfinished = t
		default:
			t.walk.Drop()
			t.walk = nil
		}
	}
}

// share returns how many entries a tree may have without being a big one.
func (c *Config) share() int { return max(c.Entries/shares, 1) }

// until returns a func that reports whether end has passed or ctx has ended.
func until(ctx context.Context, end time.Time) func() bool {
	return func() bool { return ctx.Err() != nil || !time.Now().Before(end) }
}

// queue returns the trees, longest unmeasured first. The tree with an unfinished
// walk is the first of the big ones.
func (l *measurement) queue() (small, big []*tree) {
	small = make([]*tree, 0, len(l.known.trees))
	for _, t := range l.known.trees {
		if t.big || t == l.known.unfinished {
			big = append(big, t)
		} else {
			small = append(small, t)
		}
	}
	older := func(a, b *tree) int { return a.at.Compare(b.at) }
	slices.SortFunc(small, older)
	slices.SortFunc(big, func(a, b *tree) int {
		switch {
		case a == l.known.unfinished:
			return -1
		case b == l.known.unfinished:
			return 1
		}
		return older(a, b)
	})
	return small, big
}

// step continues the walk of a tree, and returns the number of entries. It abandons a
// walk that does not return in time.
func (l *measurement) step(ctx context.Context, t *tree, entries int, stop func() bool) (took int) {
	walk := t.walk
	t.walk = nil
	if walk == nil {
		if walk, l.freeWalk = l.freeWalk, nil; walk == nil {
			walk = &Walk{}
		}
	}
	walk.HasMounts = t.hasMounts
	var done bool
	var err error
	if t.system.local {
		took, done, err = l.walker.Measure(walk, t.place, entries, stop)
	} else {
		took, done, err = l.stepRemote(ctx, walk, t, entries, stop)
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
			l.logOnce(t, err)
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
		t.logged = false
	}
	if err != nil {
		l.logOnce(t, err)
	}
	walk.Drop()
	*walk = Walk{}
	l.freeWalk = walk
	return took
}

var errLate = errors.New("file system does not respond")

// stepRemote is a step that may hang. If it does, it keeps the walk, and the caller
// must not use it.
func (l *measurement) stepRemote(ctx context.Context, walk *Walk, t *tree, entries int, stop func() bool) (int, bool, error) {
	var took int
	var done bool
	var err error
	place := t.place
	if !l.runRemote(ctx, t.system, func() { took, done, err = new(Walker).Measure(walk, place, entries, stop) }) {
		return 0, false, errLate
	}
	return took, done, err
}

var errEndless = errors.New("too many files to count")

// logOnce logs an error of a tree, once until a walk succeeds.
func (l *measurement) logOnce(t *tree, err error) {
	if !t.logged {
		t.logged = true
		l.cfg.Log.Warn("cannot measure pod storage completely", "root", t.place.Root, "path", t.place.Path, "error", err)
	}
}
