package preload

import (
	"context"
	"errors"
	"slices"

	"github.com/tinylet/tinylet/agent/container"
)

// protect has the runtime keep what is put. That is written down first: what
// is protected for ever, and by nobody known, would fill the disk.
func (p *Preloader) protect(ctx context.Context) error {
	if !p.journal.Leased {
		p.journal.Leased = true
		p.save()
	}
	return p.cfg.Importer.Protect(ctx)
}

// tidy ends the protection when nothing is left that needs it, and forgets
// archives that have gone. A runtime that is away is asked another time.
func (p *Preloader) tidy(ctx context.Context) error {
	busy := false
	p.mu.Lock()
	for _, f := range p.archives {
		busy = busy || f.state < done
	}
	gone := func(i imported) bool {
		f := p.archives[i.Name]
		return f == nil || f.sig != i.signature
	}
	forget := slices.ContainsFunc(p.journal.Archives, gone)
	p.journal.Archives = slices.DeleteFunc(p.journal.Archives, gone)
	p.mu.Unlock()
	if p.journal.Leased && !busy {
		err := p.cfg.Importer.Release(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, container.ErrUnsupported) {
			p.cfg.Log.Warn("content of image archives stays protected for now", "error", err)
		} else {
			p.journal.Leased, forget = false, true
		}
	}
	if forget {
		p.save()
	}
	return nil
}

// record writes down that an archive has been imported.
func (p *Preloader) record(f *file) {
	p.journal.Archives = slices.DeleteFunc(p.journal.Archives, func(i imported) bool { return i.Name == f.name })
	p.journal.Archives = append(p.journal.Archives, imported{Name: f.name, signature: f.sig, Images: f.images})
	p.save()
}

// save writes the journal. Without one, archives are looked at again at the
// next start, and nothing else is lost.
func (p *Preloader) save() {
	if err := p.journal.save(p.cfg.StateFile); err != nil {
		p.cfg.Log.Warn("journal of image archives is out of date", "error", err)
	}
}
