package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// settled is how long a file must not have been written to: one that is still
// being copied in is no archive yet.
const settled = 2 * time.Second

// retryFolder is when a folder is tried again that cannot be watched.
const retryFolder = time.Minute

// Run reads the folder, imports what is new in it and follows its changes,
// until ctx ends, with its error. It blocks on the runtime, never on pods.
func (p *Preloader) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ended = false
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		p.announce()
	}()
	j, err := loadJournal(p.cfg.StateFile)
	if err != nil {
		j.Leased = true // perhaps
		p.cfg.Log.Warn("all image archives are looked at again", "error", err)
	}
	p.journal = j
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.cfg.Log.Warn("image archives are not looked for", "folder", p.cfg.Dir, "error", err)
			// Pods need not wait for what may never come.
			p.mu.Lock()
			p.ready = true
			p.announce()
			p.mu.Unlock()
			if !p.pause(ctx, retryFolder) {
				return ctx.Err()
			}
		}
	}
}

// pause answers false when ctx ended first.
func (p *Preloader) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// errMoved says that the folder is not the one that is watched.
var errMoved = errors.New("the folder was moved or removed")

// follow works on one folder until ctx ends or the folder has gone.
func (p *Preloader) follow(ctx context.Context) error {
	if err := os.MkdirAll(p.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of image archives: %w", err)
	}
	root, err := os.OpenRoot(p.cfg.Dir)
	if err != nil {
		return fmt.Errorf("open the folder of image archives: %w", err)
	}
	defer root.Close()
	w, err := watch(p.cfg.Dir)
	if err != nil {
		return err
	}
	defer w.close()
	for {
		if err := p.list(root); err != nil {
			return err
		}
		if err := p.tidy(ctx); err != nil {
			return err
		}
		if err := p.workAll(ctx, root, w.changed); err != nil {
			return err
		}
		if moved(root, p.cfg.Dir) {
			p.cfg.Log.Info("folder of image archives has moved, the new one is taken", "folder", p.cfg.Dir)
			return nil
		}
	}
}

// moved says whether dir is another folder than root.
func moved(root *os.Root, dir string) bool {
	was, err := root.Stat(".")
	if err != nil {
		return true
	}
	is, err := os.Stat(dir)
	return err != nil || !os.SameFile(was, is)
}

// workAll works until the folder changes.
func (p *Preloader) workAll(ctx context.Context, root *os.Root, changed <-chan struct{}) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case <-changed:
			return nil
		default:
		}
		f, wait := p.next(time.Now())
		if f != nil {
			p.work(ctx, root, f)
			continue
		}
		if err := p.tidy(ctx); err != nil {
			return err
		}
		if again, err := p.idle(ctx, changed, wait); again || err != nil {
			return err
		}
	}
}

// idle waits for something to do; again says that the folder is to be read.
func (p *Preloader) idle(ctx context.Context, changed <-chan struct{}, wait time.Duration) (again bool, err error) {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-p.wake:
		return false, nil
	case <-changed:
	case <-due:
	}
	return true, nil
}

// next is what to work on: what is not known first, so that pods know, then
// what pods wait for. Without any it is when to look again; 0 is never.
func (p *Preloader) next(now time.Time) (best *file, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rank := func(f *file) int {
		switch {
		case f.images == nil:
			return 0
		case f.wanted:
			return 1
		}
		return 2
	}
	for _, f := range p.sorted() {
		if f.state != unread && f.state != waiting && (f.state != failed || f.broken) {
			continue
		}
		if left := f.again.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if best == nil || rank(f) < rank(best) {
			best = f
		}
	}
	return best, wait
}

// isArchive says whether a file is one by its name. Names that begin with a
// dot are of files on their way.
func isArchive(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	for _, end := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst"} { // the last to refuse it aloud
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// list reads the folder. An archive that the journal knows is done; one that
// has changed is a new one.
func (p *Preloader) list(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("list the folder of image archives: %w", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("list the folder of image archives: %w", err)
	}
	known := make(map[string]imported, len(p.journal.Archives))
	for _, i := range p.journal.Archives {
		known[i.Name] = i
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	there := make(map[string]bool)
	for _, e := range entries {
		info, err := root.Stat(e.Name()) // a link is followed, but not out of the folder
		if err != nil || !info.Mode().IsRegular() || !isArchive(e.Name()) {
			continue
		}
		there[e.Name()] = true
		sig := signatureOf(info)
		if old := p.archives[e.Name()]; old != nil && old.sig == sig {
			continue
		}
		f := &file{name: e.Name(), sig: sig}
		if age := time.Since(sig.Modified); age >= 0 && age < settled {
			f.again = time.Now().Add(settled - age)
		}
		if i, ok := known[f.name]; ok && i.signature == sig && len(i.Images) > 0 {
			f.state, f.images = done, i.Images
		}
		p.archives[f.name] = f
	}
	for name := range p.archives {
		if !there[name] {
			delete(p.archives, name)
		}
	}
	p.ready = true
	p.announce()
	return nil
}
