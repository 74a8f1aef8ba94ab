// Package preload imports image archives from a folder into the runtime's store. An
// archive is the output of docker save or an OCI image layout, as a tar file, plain or
// compressed with gzip. Archives are imported one after the other while pods start. An
// archive is imported once, and again when a pod needs its image and the image was
// removed. An import is resumed after a power cut. The runtime determines which images are
// present. The journal only records which archives need not be read again.
package preload

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

// Importer is the content and image store of a runtime. It is called from one
// goroutine. Its errors wrap container.ErrCorrupt for invalid content, and
// container.ErrUnsupported if the runtime has no such store.
type Importer interface {
	// Protect keeps everything that is put until Release from being removed,
	// also across restarts of the agent, the runtime and the node.
	Protect(ctx context.Context) error
	// Release ends the protection. It is not an error if there was none.
	Release(ctx context.Context) error
	// Put stores a blob. r provides it from its beginning. Put resumes where an earlier,
	// interrupted Put ended. Only ctx limits its time.
	Put(ctx context.Context, b container.Blob, r io.Reader) error
	// Tag creates an image from blobs that were put, or moves its name there.
	Tag(ctx context.Context, name string, b container.Blob) error
}

// Config configures a Preloader. Fields are required unless their comment says
// otherwise.
type Config struct {
	// Dir is the folder of archives: files that end in .tar, .tar.gz or .tgz. Files that
	// end in .tar.zst are rejected with an event. Run creates the folder if it does not
	// exist.
	Dir string
	// StateFile is the journal's path. Writing the journal creates its directory.
	StateFile string
	Importer  Importer
	// Images checks whether the runtime's CRI service shows an image.
	Images interface {
		ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	}
	// Platform is the platform to select images for; zero is the node's, as
	// containerd detects it.
	Platform ocispec.Platform
	Events   *event.Recorder
	Log      *slog.Logger
}

// Preloader imports archives. Wait is safe for concurrent use at any time.
type Preloader struct {
	cfg  Config
	wake wait.Wakeup // a caller of Wait needs an archive

	// journal is used by Run's goroutine only.
	journal *journal

	mu       sync.Mutex
	archives map[string]*archiveFile // by name
	ready    bool                    // the folder has been read
	ended    bool                    // Run has returned
	changed  chan struct{}           // closed and replaced at every change of state
}

// state is the state of an archive.
type state uint8

const (
	unread  state = iota // its images are not known yet
	waiting              // queued for import
	running              // being imported
	done                 // imported
	failed               // retried after retryFailed, unless the archive is broken
)

// archiveFile is an archive in the folder. Its data belongs to its signature: a
// changed file gets a new value.
type archiveFile struct {
	name   string
	sig    signature
	state  state
	images map[string]digest.Digest // by name; nil while unread, empty if it could not be read
	plan   *plan                    // set only between reading and importing
	broken bool                     // fails until the file changes
	needed bool                     // a pod waits for it

	failures    int
	retryAt     time.Time // earliest time of the next attempt
	lastAttempt time.Time // end of the last attempt
}

// New returns a Preloader. It reads and starts nothing.
func New(c Config) (*Preloader, error) {
	if c.Dir == "" || c.StateFile == "" || c.Importer == nil || c.Images == nil || c.Events == nil || c.Log == nil {
		return nil, errors.New("preload: Dir, StateFile, Importer, Images, Events and Log are required")
	}
	return &Preloader{
		cfg:      c,
		wake:     wait.NewWakeup(),
		journal:  &journal{Version: journalVersion},
		archives: make(map[string]*archiveFile),
		changed:  make(chan struct{}),
	}, nil
}

// minRetryInterval is the minimum time between two attempts on an archive whose
// image a pod needs.
const minRetryInterval = time.Minute

// Wait waits for the import of an image that is not present. It blocks while
// an archive that names the image is queued or being imported, and while there
// are unread archives. It reports whether an archive names the image; the
// caller then checks again whether the image is present. An image that was
// imported and removed since is imported again. Wait returns when ctx or Run
// ends. Before Run has started it blocks.
func (p *Preloader) Wait(ctx context.Context, ref string) (known bool) {
	named, err := reference.ParseDockerRef(ref) // without the tag if there is a digest, as in runtimes
	if err != nil {
		return false
	}
	waited := false
	for {
		known, wait := p.lookup(named.String(), &waited)
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

// lookup returns the channel to wait on, or nil if there is nothing to wait for.
// known reports whether an archive names the image. waited is set once the
// caller waits for an import, which limits it to one.
func (p *Preloader) lookup(name string, waited *bool) (known bool, wait <-chan struct{}) {
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
	case *waited, f.broken, time.Since(f.lastAttempt) < minRetryInterval:
		return true, nil
	default:
		// It was imported and the image is missing, or it failed for a reason
		// that may no longer exist.
		f.state, f.failures, f.retryAt = waiting, 0, time.Time{}
		p.notify()
	}
	f.needed, *waited = true, true
	p.wake.Set()
	return true, p.changed
}

// find returns an archive that names the image. It prefers a pending archive to an
// imported one, and an imported one to a failed one. unsure means that there are unread
// archives. The caller holds mu.
func (p *Preloader) find(name string) (found *archiveFile, unsure bool) {
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

func rankOf(f *archiveFile) int {
	switch {
	case f.state == done:
		return 1
	case f.state == failed:
		return 2
	}
	return 0
}

func (p *Preloader) sorted() []*archiveFile {
	return slices.SortedFunc(maps.Values(p.archives), func(a, b *archiveFile) int { return cmp.Compare(a.name, b.name) })
}

// notify wakes all callers of Wait. The caller holds mu.
func (p *Preloader) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// update runs change, which modifies the state of p or of an archive, with mu held, and wakes
// all callers of Wait.
func (p *Preloader) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.notify()
}
