// Package preload owns the folder of image archives: files that docker save
// writes, and OCI image layouts, as tar, plain or with gzip. Each is brought
// into the runtime's store once, beside the start of pods, and again when a
// pod wants its image and the image has gone. It is resumed after a power
// cut. Whether an image is present only the runtime knows; the journal says
// which archives need not be looked at again.
package preload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// Importer is a runtime's store of content and images. It is called by one
// goroutine. Errors in content are container.ErrCorrupt, a runtime that has
// no such store container.ErrUnsupported.
type Importer interface {
	// Protect keeps what is put until Release from being removed, across
	// restarts of everything.
	Protect(ctx context.Context) error
	// Release ends that. It is no error if there was no protection.
	Release(ctx context.Context) error
	// Put stores a blob that r has from its beginning, and goes on where an
	// earlier Put was broken off.
	Put(ctx context.Context, b container.Blob, r io.Reader) error
	// Tag makes an image of blobs that were put, or moves its name there.
	Tag(ctx context.Context, name string, b container.Blob) error
}

// Config is what a Preloader works with. All fields are required but those
// that say otherwise.
type Config struct {
	// Dir is the folder of archives: files that end in .tar, .tar.gz or .tgz.
	// It is made if it does not exist.
	Dir string
	// StateFile is the journal's path; its folder is made.
	StateFile string
	Importer  Importer
	// Images tells whether the runtime shows an image.
	Images interface {
		ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	}
	// FullName spells an image's name in full, as the runtime does.
	FullName func(string) (string, error)
	// Platform is what images are chosen for; zero is this binary's.
	Platform Platform
	Events   *event.Recorder
	Log      *slog.Logger
}

// Preloader imports archives. Wait may be called by anybody at any time.
type Preloader struct {
	cfg  Config
	wake chan struct{} // one slot: somebody waits for an archive

	// Of Run's goroutine alone.
	journal *journal

	mu       sync.Mutex
	archives map[string]*file // by name
	ready    bool             // the folder has been read
	ended    bool             // Run has returned
	changed  chan struct{}    // closed at every change of state; then replaced
}

// state is what has become of an archive.
type state uint8

const (
	unread  state = iota // what it has is not known
	waiting              // to be imported
	running              // being imported
	done                 // imported
	failed               // cannot be imported, now or ever
)

// file is an archive in the folder. The signature and what was learned from
// it belong together: a changed file is a new one.
type file struct {
	name   string
	sig    signature
	state  state
	images map[string]string // digests by name; nil while unread
	plan   *plan             // nil unless it is about to be imported
	broken bool              // failed for as long as it does not change
	wanted bool              // a pod waits for it

	failures int
	again    time.Time // no attempt before
	ended    time.Time // of the last attempt
}

// New makes a Preloader; nothing is read or started.
func New(c Config) (*Preloader, error) {
	if c.Dir == "" || c.StateFile == "" || c.Importer == nil || c.Images == nil || c.FullName == nil || c.Events == nil || c.Log == nil {
		return nil, errors.New("preloader: a field of the config is missing")
	}
	if c.Platform == (Platform{}) {
		c.Platform = HostPlatform()
	}
	return &Preloader{
		cfg:      c,
		wake:     make(chan struct{}, 1),
		journal:  &journal{Version: journalVersion},
		archives: make(map[string]*file),
		changed:  make(chan struct{}),
	}, nil
}

// retryWanted is how long an archive that was tried is left alone, though a
// pod misses its image.
const retryWanted = time.Minute

// Wait is for an image that is not present. It blocks while an archive that
// names it is waiting or being imported, or while it is not known what the
// archives have, and says whether one names it: then the caller looks for
// the image again. An image that was imported and has gone is imported anew.
// It ends with ctx, or with Run; it does block before Run.
func (p *Preloader) Wait(ctx context.Context, ref string) (known bool) {
	name, err := p.cfg.FullName(ref)
	if err != nil {
		return false
	}
	waited := false
	for {
		known, wait := p.look(withoutTag(name), &waited)
		if wait == nil {
			return known
		}
		select {
		case <-ctx.Done():
			return known
		case <-wait:
		}
	}
}

// look answers what to wait for, or nil. waited says that the caller has
// waited for an import.
func (p *Preloader) look(name string, waited *bool) (known bool, wait <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, unsure := p.find(name)
	switch {
	case p.ended:
		return f != nil, nil
	case f == nil && !unsure:
		return false, nil
	case f == nil:
		return false, p.changed
	case f.state < done:
	case *waited, f.broken, time.Since(f.ended) < retryWanted:
		return true, nil
	default:
		// It was imported, or failed for a reason that may have gone.
		f.state, f.failures, f.again = waiting, 0, time.Time{}
		p.announce()
	}
	f.wanted, *waited = true, true
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return true, p.changed
}

// find looks for an archive that names the image: one that is at hand before
// one that is not. unsure says that there are archives nobody has read.
func (p *Preloader) find(name string) (found *file, unsure bool) {
	unsure = !p.ready
	for _, f := range p.sorted() {
		if f.state < done && f.images == nil {
			unsure = true
		}
		if _, ok := f.images[name]; ok && (found == nil || rankOf(f) < rankOf(found)) {
			found = f
		}
	}
	return found, unsure
}

func rankOf(f *file) int {
	switch {
	case f.state == done:
		return 1
	case f.state == failed:
		return 2
	}
	return 0
}

// withoutTag leaves the tag of a name with a digest away, as runtimes do.
func withoutTag(name string) string {
	for i := range len(name) {
		if name[i] == '@' {
			return withDigest(name[:i], name[i+1:])
		}
	}
	return name
}

func (p *Preloader) sorted() []*file {
	list := make([]*file, 0, len(p.archives))
	for _, f := range p.archives {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *file) int { return cmp.Compare(a.name, b.name) })
	return list
}

// announce wakes all that wait; the caller holds the lock.
func (p *Preloader) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// set changes an archive's state.
func (p *Preloader) set(f *file, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.announce()
}

func (f *file) String() string { return fmt.Sprintf("archive %q", f.name) }
