package preload

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/platforms"

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/wait"
)

// minFileAge is the minimum time since the last write to a file before it is
// read, because it may still be being copied.
const minFileAge = 2 * time.Second

// retryFolder is the time after which a folder that could not be watched is
// tried again.
const retryFolder = time.Minute

// Run lists the folder, imports new archives and watches for changes until ctx ends, and
// returns its error. It blocks on the runtime, never on pods. It must not run twice at the
// same time.
func (p *Preloader) Run(ctx context.Context) error {
	p.update(func() { p.ended = false })
	defer p.update(func() { p.ended = true })
	j, err := loadJournal(p.cfg.StateFile)
	if err != nil {
		j.Leased = true // unknown: release it to be safe
		p.cfg.Log.Warn("cannot load image archive journal", "error", err)
	}
	p.journal = j
	if p.cfg.Platform.Architecture == "" {
		p.cfg.Platform = platforms.DefaultSpec()
	}
	for {
		err := p.watchFolder(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.cfg.Log.Warn("cannot watch image archive folder", "folder", p.cfg.Dir, "error", err)
			// Pods do not wait for a folder that may never become readable.
			p.update(func() { p.ready = true })
			if !wait.Pause(ctx, retryFolder) {
				return ctx.Err()
			}
		}
	}
}

// watchFolder imports archives from the folder until ctx ends, the folder is moved
// or removed (nil), or it cannot be read or watched.
func (p *Preloader) watchFolder(ctx context.Context) error {
	if err := os.MkdirAll(p.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("create image archive folder: %w", err)
	}
	root, err := os.OpenRoot(p.cfg.Dir)
	if err != nil {
		return fmt.Errorf("open image archive folder: %w", err)
	}
	defer root.Close()
	w := filewatch.New(filewatch.Config{Events: filewatch.Closes}) // not each write of a copy
	defer w.Close()
	if _, err := w.Set(p.cfg.Dir); err != nil {
		return err
	}
	for {
		if _, err := w.Take(); err != nil {
			return err
		}
		if moved(root, p.cfg.Dir) {
			p.cfg.Log.Info("reopen replaced image archive folder", "folder", p.cfg.Dir)
			return nil
		}
		if err := p.list(root); err != nil {
			return err
		}
		if err := p.workAll(ctx, root, w.Changed()); err != nil {
			return err
		}
	}
}

// moved reports whether dir is no longer the folder that root was opened on.
func moved(root *os.Root, dir string) bool {
	was, err := root.Stat(".")
	if err != nil {
		return true
	}
	is, err := os.Stat(dir)
	return err != nil || !os.SameFile(was, is)
}

// workAll reads and imports archives until the folder changes or must be listed again.
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
			if err := p.work(ctx, root, f); err != nil {
				p.fail(ctx, f, err)
			}
			continue
		}
		if err := p.cleanup(ctx); err != nil {
			return err
		}
		if p.journal.Leased && (wait == 0 || wait > retryMax) {
			wait = retryMax // the release failed
		}
		if again, err := p.waitForWork(ctx, changed, wait); again || err != nil {
			return err
		}
	}
}

// waitForWork waits until there is something to do. again means that the folder must
// be listed again. A wait of 0 is no timeout.
func (p *Preloader) waitForWork(ctx context.Context, changed <-chan struct{}, wait time.Duration) (again bool, err error) {
	var due <-chan time.Time
	if wait > 0 {
		due = time.After(wait)
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

// next returns the archive to work on: unread ones first, since pods wait until all are
// read, then those that pods wait for. wait is the time until the next attempt of an archive
// that is not due; 0 is none.
func (p *Preloader) next(now time.Time) (best *archiveFile, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rank := func(f *archiveFile) int {
		switch {
		case f.images == nil:
			return 0
		case f.needed:
			return 1
		}
		return 2
	}
	for _, f := range p.sorted() {
		if f.state != unread && f.state != waiting && (f.state != failed || f.broken) {
			continue
		}
		if left := f.retryAt.Sub(now); left > 0 {
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

// isArchive reports whether a file is an archive by its name. Files whose names begin with
// a dot are not, because they may be incomplete.
func isArchive(name string) bool {
	ends := []string{".tar", ".tar.gz", ".tgz", ".tar.zst"} // the last is rejected with an event
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
}

// list reads the folder. An archive that is in the journal is done. A changed
// archive counts as a new one.
func (p *Preloader) list(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list image archive folder: %w", err)
	}
	known := make(map[string]imported, len(p.journal.Archives))
	for _, i := range p.journal.Archives {
		known[i.Name] = i
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	there := make(map[string]bool)
	for _, e := range entries {
		info, err := root.Stat(e.Name()) // follows links, but not out of the folder
		if err != nil || !info.Mode().IsRegular() || !isArchive(e.Name()) {
			continue
		}
		there[e.Name()] = true
		sig := signatureOf(info)
		if old := p.archives[e.Name()]; old != nil && old.sig == sig {
			continue
		}
		f := &archiveFile{name: e.Name(), sig: sig}
		if age := time.Since(sig.Modified); age >= 0 && age < minFileAge {
			f.retryAt = time.Now().Add(minFileAge - age)
		}
		if i, ok := known[f.name]; ok && i.signature == sig && len(i.Images) > 0 {
			f.state, f.images = done, i.Images
		}
		p.archives[f.name] = f
	}
	maps.DeleteFunc(p.archives, func(name string, _ *archiveFile) bool { return !there[name] })
	p.ready = true
	p.notify()
	return nil
}
