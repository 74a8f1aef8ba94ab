package journal

import (
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
)

const (
	// MaxKey is the longest key in bytes.
	MaxKey = 1024
	// MaxBatch is how many bytes the changes of one Write may take on the
	// disk: their keys and values, and for each some 80 bytes.
	MaxBatch = 64 << 20

	fileName = "journal"
	newName  = "journal.new"
)

var (
	// ErrKey says that a journal is sealed with another key than the one
	// given, or that none was given. Nothing on the disk was changed.
	ErrKey = errors.New("the journal is sealed with another key")
	// ErrVersion says that a journal was written by a later version, as after
	// an update that was taken back. Nothing on the disk was changed.
	ErrVersion = errors.New("the journal has a format that is not known")
	// ErrLocked says that another Journal has the folder open.
	ErrLocked = errors.New("the journal is in use")
	// ErrDamaged says that a value on the disk is not what was written.
	ErrDamaged = errors.New("the value is damaged")
)

// Config is what a journal needs.
type Config struct {
	// Dir is the folder that the journal has for itself. It is made with mode
	// 0700 if it is missing.
	Dir string
	// Key seals what is written: 32 bytes. Without one the file is plain. With
	// one a plain file is refused, unless it holds nothing. It may be cleared
	// after Open.
	Key []byte
	// Anchor lets an older copy of a sealed file be refused. Nil is none. It
	// needs a Key.
	Anchor Anchor
	// Migrate trusts the file once: a plain one is sealed with the key, and one
	// that Anchor would refuse is taken.
	Migrate bool
	// Log is told of damage and of what failed and is tried again.
	Log *slog.Logger
}

// Journal is a map of keys to values on the disk. All methods may be called
// concurrently; a Read waits for no Write but the moment in which its changes
// take effect.
type Journal struct {
	path string
	log  *slog.Logger
	disk disk
	seal *sealer // of what is written; what is read has the file's own

	// trust is Config.Migrate.
	trust bool
	// writing is held by who writes; it guards these.
	writing sync.Mutex
	seq     uint64 // the last one that was used, also for a batch that failed
	suspect bool   // nothing may be appended before a rewrite
	unsure  bool   // what was read may not be on the disk before a rewrite
	untidy  bool   // there is damage that a rewrite would leave behind
	retry   int64  // the file's size at which tidying up is tried again
	told    bool   // that it failed
	fresh   freshness

	// mu guards these. Who changes them holds writing as well, so who holds
	// writing may read them; but damaged of an entry is set under mu alone.
	mu      sync.RWMutex
	entries map[string]*entry
	newest  int64
	cur     *content
	live    int64 // what a rewrite would keep of cur, in bytes
	closed  bool
}

// content is the file that is read from and appended to.
type content struct {
	file file
	id   uint64
	seal *sealer
	size int64
}

// Open opens the journal in a folder, or begins one, and reads which keys it
// has. What a power cut or a worn disk has damaged is left out, with a warning
// for each place. It blocks on the disk.
//
// It fails with ErrKey, ErrPlain, ErrStale, ErrVersion or ErrLocked, or if the folder, the file or
// Config is not usable; nothing is lost then. On a disk that cannot be written
// it opens a journal that can be read, with a warning; Write then fails.
func Open(c Config) (*Journal, error) {
	if c.Dir == "" || c.Log == nil {
		return nil, errors.New("open journal: Dir and Log are required")
	}
	seal, err := newSealer(c.Key)
	if err != nil {
		return nil, fmt.Errorf("open journal in %q: %w", c.Dir, err)
	}
	d, err := openFolder(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open journal in %q: %w", c.Dir, err)
	}
	return openOn(d, filepath.Join(c.Dir, fileName), seal, &c)
}

// openOn opens the journal on a disk, which it closes if it cannot.
func openOn(d disk, path string, seal *sealer, c *Config) (*Journal, error) {
	j := &Journal{path: path, log: c.Log.With("journal", path), disk: d, seal: seal, trust: c.Migrate, entries: make(map[string]*entry)}
	if seal != nil {
		j.fresh.anchor = c.Anchor
	}
	if err := j.load(); err != nil {
		if j.cur != nil {
			_ = j.cur.file.Close() // nothing was written to it
		}
		return nil, errors.Join(fmt.Errorf("open journal %q: %w", path, err), d.close())
	}
	return j, nil
}

// load reads the file and makes it fit to be appended to. It changes nothing
// before all is read and the key is known to be right.
func (j *Journal) load() error {
	f, err := j.disk.open(fileName, os.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j.begin()
	case errors.Is(err, unix.EROFS):
		// As a kernel leaves a card with errors: pods can still be started.
		j.log.Warn("journal is on a disk that can only be read")
		j.suspect = true
		f, err = j.disk.open(fileName, os.O_RDONLY)
	}
	if err != nil {
		return err
	}
	j.cur = &content{file: f}
	size, err := f.Size()
	if err != nil {
		return err
	}
	r, err := replay(f, size, j.seal, j.log, j.trust)
	if errors.Is(err, ErrPlain) && size == openingSize(nil) {
		return j.begin() // it holds nothing
	}
	if err != nil {
		return err
	}
	if !r.known {
		// Not one batch: there is nothing to go on from.
		j.log.Warn("journal holds no whole batch and begins anew", "bytes", size)
		return j.begin()
	}
	if err := j.resume(&r, j.trust); err != nil {
		return err
	}
	j.cur.id, j.cur.size = r.file, r.end
	if r.key != 0 {
		j.cur.seal = j.seal
	}
	j.entries, j.seq, j.newest, j.untidy = r.entries, r.seq, r.newest, r.damaged
	j.live = liveSize(j.entries, j.cur.seal)
	if !j.suspect {
		j.settle(size)
	}
	if j.suspect {
		return nil
	}
	// A file that has nothing yet may be one whose name could not be synced
	// when it was made, and a second sync would not tell. It is cheap to make.
	if j.seal != j.cur.seal || j.cur.size == openingSize(j.cur.seal) || j.outdated(&r) {
		if err := j.rewrite(); err != nil {
			j.doubt(err)
		}
	} else {
		j.raise() // a power cut may have come before it
	}
	return nil
}

// begin makes a file that holds nothing.
func (j *Journal) begin() error {
	if err := j.resume(&replayed{}, true); err != nil {
		return err
	}
	return j.rewrite()
}

// outdated reports whether the file has to be written in another generation,
// or in none.
func (j *Journal) outdated(r *replayed) bool {
	if j.fresh.anchor == nil {
		return r.mark.generation > 0
	}
	return !j.fresh.intact
}

// settle makes what was read safe from a power cut: the process before may
// have died between writing it and syncing it. It cuts off a torn tail.
func (j *Journal) settle(size int64) {
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
		err = j.remove()
	}
	if err != nil {
		j.doubt(err)
	}
}

// doubt has the next Write rewrite the file before all else, so that what can
// be read can be read all the same.
func (j *Journal) doubt(err error) {
	j.log.Warn("journal will be rewritten before it is written to", "error", err)
	j.suspect, j.unsure = true, true
}

// remove removes what a rewrite left that was interrupted.
func (j *Journal) remove() error {
	if err := j.disk.remove(newName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keys answers the keys that begin with prefix, sorted. It does not block on
// the disk, and answers also after Close.
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

// Newest answers the wall time at which the newest batch was written, as the
// clock had it then, or the zero time if none ever was. It outlives the
// deletion of all keys. It does not block on the disk, and answers also after
// Close.
func (j *Journal) Newest() time.Time {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.newest == 0 {
		return time.Time{}
	}
	return time.Unix(0, j.newest)
}

// Close ends the journal and lets others open it. All that was acknowledged is
// on the disk before. It waits for a Write that is under way. Closing again
// does nothing.
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

// liveSize is what a rewrite of the entries takes, but for the opening.
func liveSize(entries map[string]*entry, seal *sealer) int64 {
	var size int64
	for name, e := range entries {
		size += e.stored(name, seal)
	}
	return size
}
