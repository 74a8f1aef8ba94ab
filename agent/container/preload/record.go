package preload

import (
	"context"
	"errors"
	"slices"

	"github.com/tinylet/tinylet/agent/container"
)

// protect makes the runtime protect imported content from its garbage
// collection. The journal records that first, because a protection that is
// never released would fill the disk.
func (p *Preloader) protect(ctx context.Context) error {
	if !p.journal.Leased {
		p.journal.Leased = true
		p.save()
	}
	return p.cfg.Importer.Protect(ctx)
}

// cleanup releases the protection once no archive is pending, and removes deleted
// archives from the journal. If the runtime is unavailable, a later call tries
// again. It returns an error only if ctx ended.
func (p *Preloader) cleanup(ctx context.Context) error {
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
			p.cfg.Log.Warn("cannot release lease of image archives", "error", err)
		} else {
			p.journal.Leased, forget = false, true
		}
	}
	if forget {
		p.save()
	}
	return nil
}

// record adds an imported archive to the journal.
func (p *Preloader) record(f *archiveFile) {
	p.journal.Archives = slices.DeleteFunc(p.journal.Archives, func(i imported) bool { return i.Name == f.name })
	p.journal.Archives = append(p.journal.Archives, imported{Name: f.name, signature: f.sig, Images: f.images})
	p.save()
}

// save writes the journal. If that fails, the only loss is that archives are
// read again at the next start.
func (p *Preloader) save() {
	if err := p.journal.save(p.cfg.StateFile); err != nil {
		p.cfg.Log.Warn("cannot write image archive journal", "error", err)
	}
}
