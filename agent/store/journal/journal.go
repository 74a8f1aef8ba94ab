package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/health"
)

const (
	// MaxKey is the longest key in bytes.
	MaxKey = 1024
	// MaxBatch is the largest size, in bytes on the disk, of the changes of one
	// Write: their keys and values, and some 80 bytes for each.
	MaxBatch = 64 << 20

	fileName = "journal"
	newName  = "journal.new"
)

var (
	// ErrKey means that a journal is sealed with another key than the given
	// one, or that no key was given. Nothing on the disk was changed.
	ErrKey = errors.New("the journal is sealed with another key")
	// ErrVersion means that a later version wrote the journal, as after an
	// update that was rolled back. Nothing on the disk was changed.
	ErrVersion = errors.New("unknown journal format")
	// ErrLocked means that another Journal has the directory open.
	ErrLocked = errors.New("the journal is in use")
	// ErrDamaged means that a value on the disk is not the one that was written.
	ErrDamaged = errors.New("the value is damaged")
)

// Config configures a journal. Dir and Log are required.
type Config struct {
	// Dir is a directory for the journal alone. Open creates it with mode 0700
	// if it is missing.
	Dir string
	// Key is the key of 32 bytes that seals the file. If it is nil, the file is plain.
	// With a key, Open rejects a plain file unless it is empty or Migrate is set. The
	// caller may clear Key after Open.
	Key []byte
	// Anchor detects older copies of a sealed file. It is ignored without a Key. If it
	// is nil, older copies are accepted.
	Anchor Anchor
	// Migrate trusts the file once: a plain file is sealed with the key, and a
	// file that Anchor would reject is accepted.
	Migrate bool
	// Log receives warnings about damage and about failures that are retried.
	Log *slog.Logger
}

// Journal is a map of keys to values on the disk. All methods are safe for
// concurrent use. A Read waits for a Write only while the changes of the Write
// take effect.
type Journal struct {
	path string
	log  *slog.Logger
	disk disk
	seal *sealer // for writing; the content has the sealer for reading

	// trust is Config.Migrate.
	trust bool
	// writing is held during a Write and guards these.
	writing              sync.Mutex
	seq                  uint64 // the last one that was used, also for a batch that failed
	mustRewrite          bool   // nothing may be appended before a rewrite
	unsynced             bool   // entries may not be on the disk before a rewrite
	damaged              bool   // there is damage that a rewrite would remove
	retrySize            int64  // the file size at which a failed compaction is tried again
	rewriteFailureLogged bool   // the failed compaction was logged
	anchorState          anchorState

	// mu guards these. They are changed with writing held as well, so with
	// writing held they may be read without mu. Only entry.damaged is set with
	// mu alone.
	mu      sync.RWMutex
	entries map[string]*entry
	newest  int64
	cur     *openFile
	live    int64 // the part of cur that a rewrite would keep, in bytes
	closed  bool
}

// openFile is the file that is read and appended to.
type openFile struct {
	file file
	id   uint64
	seal *sealer
	size int64
}

// Open opens the journal in a directory, or creates one, and reads its keys. It
// leaves out what a power cut or a worn disk has damaged, and logs a warning for
// each damaged part. It blocks on the disk.
//
// It fails with ErrKey, ErrPlain, ErrStale, ErrVersion or ErrLocked, or if the directory,
// the file, the anchor or Config is not usable. Nothing is lost then. A file without an
// intact batch is replaced by an empty one. On a read-only disk with a journal it opens
// the journal for reading and logs a warning. Write then fails.
func Open(c Config) (*Journal, error) {
	if c.Dir == "" || c.Log == nil {
		return nil, errors.New("open journal: Dir and Log are required")
	}
	seal, err := newSealer(c.Key)
	if err != nil {
		return nil, fmt.Errorf("open journal in %q: %w", c.Dir, err)
	}
	d, err := openDirectory(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open journal in %q: %w", c.Dir, err)
	}
	return openOn(d, filepath.Join(c.Dir, fileName), seal, &c)
}

// openOn opens the journal on a disk. It closes the disk on an error.
func openOn(d disk, path string, seal *sealer, c *Config) (*Journal, error) {
	j := &Journal{path: path, log: c.Log.With("journal", path), disk: d, seal: seal, trust: c.Migrate, entries: make(map[string]*entry)}
	if seal != nil {
		j.anchorState.anchor = c.Anchor
	}
	if err := j.load(); err != nil {
		if j.cur != nil {
			_ = j.cur.file.Close() // nothing was written to it
		}
		return nil, errors.Join(fmt.Errorf("open journal %q: %w", path, err), d.close())
	}
	return j, nil
}

// load reads the file and prepares it for appending. It changes nothing in the directory
// before it has read the whole file and verified the key and the anchor.
func (j *Journal) load() error {
	f, size, err := j.disk.open(fileName, os.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j.createEmpty()
	case errors.Is(err, unix.EROFS):
		// The kernel remounts a card with errors read-only. Pods can still be
		// started.
		j.log.Warn("journal is on a read-only disk")
		j.mustRewrite = true
		f, size, err = j.disk.open(fileName, os.O_RDONLY)
	}
	if err != nil {
		return err
	}
	j.cur = &openFile{file: f}
	r, err := replay(f, size, j.seal, j.log, j.trust)
	if errors.Is(err, ErrPlain) && size == openingSize(nil) {
		return j.createEmpty() // it is empty
	}
	if err != nil {
		return err
	}
	if !r.identified {
		// There is no intact batch to continue from.
		j.log.Warn("discard journal without an intact batch", "bytes", size)
		return j.createEmpty()
	}
	if err := j.checkAnchor(&r, j.trust); err != nil {
		return err
	}
	j.cur.id, j.cur.size = r.file, r.end
	if r.key != 0 {
		j.cur.seal = j.seal
	}
	j.entries, j.seq, j.newest, j.damaged = r.entries, r.seq, r.newest, r.damaged
	for name, e := range j.entries {
		j.live += e.stored(name, j.cur.seal)
	}
	if !j.mustRewrite {
		j.syncLoaded(size)
	}
	if j.mustRewrite {
		return nil
	}
	// The sync of the directory may have failed when an empty file was created,
	// and a second sync would not report that. Rewriting it is cheap.
	if j.seal != j.cur.seal || j.cur.size == openingSize(j.cur.seal) || j.needsRewrite(&r) {
		if err := j.rewrite(); err != nil {
			j.requireRewrite(err)
		}
	} else {
		j.advanceAnchor() // a power cut may have come before it
	}
	return nil
}

// createEmpty replaces the file, if any, by an empty one, whatever the anchor.
func (j *Journal) createEmpty() error {
	if err := j.checkAnchor(&replayed{}, true); err != nil {
		return err
	}
	return j.rewrite()
}

// needsRewrite reports whether the file must be rewritten in another generation, or
// without one.
func (j *Journal) needsRewrite(r *replayed) bool {
	if j.anchorState.anchor == nil {
		return r.mark.generation > 0
	}
	return !j.anchorState.intact
}

// syncLoaded syncs what was read to the disk: the previous process may have died
// between write and sync. It cuts off a torn tail. After an error the next Write
// rewrites the file.
func (j *Journal) syncLoaded(size int64) {
	var err error
	if size > j.cur.size {
		err = j.cur.file.Truncate(j.cur.size)
	}
	if err == nil {
		err = j.cur.file.Sync()
	}
	if err == nil {
		err = j.disk.sync()
	}
	if err == nil {
		err = j.disk.remove(newName) // that of an interrupted rewrite
	}
	if err != nil {
		j.requireRewrite(err)
	}
}

// requireRewrite makes the next Write rewrite the file first. The journal stays readable
// until then.
func (j *Journal) requireRewrite(err error) {
	j.log.Warn("rewrite journal before next write", "error", err)
	j.mustRewrite, j.unsynced = true, true
}

// Keys returns the keys that begin with prefix, sorted. It does not block on the
// disk, and works after Close.
func (j *Journal) Keys(prefix string) []string {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var keys []string
	for key := range j.entries {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Newest returns the wall time at which the newest batch was written, by the
// clock at that time, or the zero time if none ever was. It survives the deletion
// of all keys. It does not block on the disk, and works after Close.
func (j *Journal) Newest() time.Time {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.newest == 0 {
		return time.Time{}
	}
	return time.Unix(0, j.newest)
}

// Unlocked returns health.ErrLockHeld if a Write blocks Reads until ctx ends. A Write
// blocks them only while its changes take effect. While it waits for the disk, for however
// long, Unlocked returns nil.
func (j *Journal) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, j.mu.TryRLock, j.mu.RUnlock)
}

// Close closes the journal and releases its lock. Acknowledged changes are on
// the disk already. It waits for a Write in progress. A second Close does
// nothing.
func (j *Journal) Close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if err := errors.Join(j.cur.file.Close(), j.disk.close()); err != nil {
		return fmt.Errorf("close journal %q: %w", j.path, err)
	}
	return nil
}
