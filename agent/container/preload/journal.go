package preload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// journalVersion is the version of the file format. A file of another version is not
// used.
const journalVersion = 1

// maxJournal limits the bytes of the journal. save removes the oldest archives of a larger
// one; they are imported again at the next start.
const maxJournal = 8 << 20

// journal is the persistent list of imported archives.
type journal struct {
	Version int `json:"version"`
	// Leased means that the runtime may hold a lease for an import.
	Leased   bool       `json:"leased,omitempty"`
	Archives []imported `json:"archives,omitempty"`
}

// imported is an imported archive, with its signature at the import.
type imported struct {
	Name string `json:"name"`
	signature
	// Images maps the full names of the imported images to their digests.
	Images map[string]digest.Digest `json:"images"`
}

// signature identifies a version of a file, to detect changes.
type signature struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// signatureOf returns the signature of a file. A time that is no number of nanoseconds of 64
// bits becomes another one, because JSON has none after the year 9999.
func signatureOf(info fs.FileInfo) signature {
	return signature{Size: info.Size(), Modified: time.Unix(0, info.ModTime().UnixNano()).UTC()}
}

// loadJournal reads the journal. A missing file is an empty journal. With an error,
// including that of another version, it also returns an empty journal.
func loadJournal(path string) (*journal, error) {
	empty := &journal{Version: journalVersion}
	data, err := atomicfile.Read(path, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("read image archive journal: %w", err)
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return empty, fmt.Errorf("parse image archive journal %q: %w", path, err)
	}
	if j.Version != journalVersion {
		return empty, fmt.Errorf("parse image archive journal %q: unsupported version %d, want %d", path, j.Version, journalVersion)
	}
	return &j, nil
}

// save writes the journal atomically: a power cut leaves the old one or the
// new one.
func (j *journal) save(path string) error {
	data, err := json.Marshal(j)
	all := len(j.Archives)
	for len(data) > maxJournal && len(j.Archives) > 0 {
		j.Archives = j.Archives[1:]
		data, err = json.Marshal(j)
	}
	if err != nil {
		return fmt.Errorf("encode image archive journal: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write image archive journal %q: %w", path, err)
	}
	if dropped := all - len(j.Archives); dropped > 0 {
		return fmt.Errorf("write image archive journal %q: %d of %d archives exceed its %d bytes", path, dropped, all, maxJournal)
	}
	return nil
}

// protect makes the runtime protect imported content from its garbage collection. The
// journal records that first, because a lease that is never released keeps content that
// no image references.
func (p *Preloader) protect(ctx context.Context) error {
	if !p.journal.Leased {
		p.journal.Leased = true
		p.save()
	}
	return p.cfg.Importer.Protect(ctx)
}

// cleanup releases the protection once no archive is pending, and removes deleted and
// changed archives from the journal. If the release fails, the next call tries again, after
// retryMax at the latest. cleanup returns an error only if ctx ended.
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

func (p *Preloader) record(f *archiveFile) {
	p.journal.Archives = slices.DeleteFunc(p.journal.Archives, func(i imported) bool { return i.Name == f.name })
	p.journal.Archives = append(p.journal.Archives, imported{Name: f.name, signature: f.sig, Images: f.images})
	p.save()
}

// save writes the journal. If that fails, archives are read and imported again at the next
// start, and a lease of which the journal has no record is released only after the next
// import.
func (p *Preloader) save() {
	if err := p.journal.save(p.cfg.StateFile); err != nil {
		p.cfg.Log.Warn("cannot write image archive journal", "error", err)
	}
}
