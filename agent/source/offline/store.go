package offline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// DefaultMaxBytes is Config.MaxBytes where that is 0.
const DefaultMaxBytes = 32 << 20

// Config is what a Store needs.
type Config struct {
	// Dir is the folder that the journal has for itself, such as
	// /var/lib/tinylet/journal. It is made with mode 0700 if it is missing.
	Dir string
	// Key answers the key that seals the journal, as KeyFile, Keyring and
	// package tpmkey do. Nil is none: the journal is not sealed then.
	Key func() ([]byte, error)
	// Anchor lets an older copy of the journal be refused; nil is none. It
	// needs a key.
	Anchor journal.Anchor
	// Quarantine has a journal that cannot be read, for its key or for its
	// version, put aside and a new one begun. A plain journal where there is a
	// key, and one that is older than its anchor, are always put aside.
	Quarantine bool
	// MaxBytes is how much the journal may hold, at most journal.MaxBatch;
	// zero is DefaultMaxBytes. The file may have twice as much.
	MaxBytes int64
	// Met says that the server has answered somebody since the start. It must
	// not block. Nil leaves it to the reads.
	Met func() bool
	// Ask says whether a Reader may ask the server for what the journal has.
	// Until the server has told which pods are the node's, it refuses objects
	// of pods that were deleted meanwhile. It must not block. Nil always may.
	Ask func() bool
	// Started answers when a pod was taken on, as its newest status has it, or
	// nil. It must not block. Nil leaves it to the pods' own status.
	Started func(uid types.UID) *metav1.Time
	Log     *slog.Logger
}

// disk is a journal.Journal. The second implementation is one that fails in
// tests.
type disk interface {
	Keys(prefix string) []string
	Read(key string) ([]byte, bool, error)
	Write(changes ...journal.Change) error
	Newest() time.Time
	Close() error
}

// Store keeps pods and what they use. All methods may be called at once; those
// that write block on the disk. It has no goroutines, and does nothing where
// nothing is asked.
type Store struct {
	config  Config
	journal disk
	refused error // why a journal was put aside at Open; nil if none was

	// turn holds one token; who has it may write to the journal.
	turn chan struct{}

	// mu guards these. Who changes stored, pods or dead has the turn as well.
	// It is not held while the disk is waited for.
	mu      sync.Mutex
	stored  map[string]stored // all that the journal has, by its keys
	size    int64             // of all of that, in bytes
	unread  map[string]bool   // keys of values that do not decode
	pods    map[types.UID]*held
	objects map[key]*entry
	dead    map[types.UID]bool // forgotten, but still on the disk
	seen    seen
	link    link
	failing bool // the last write of an object failed
}

// stored is one value on the disk.
type stored struct {
	size int64
	sum  sum
}

// held is what memory has of a pod.
type held struct {
	outline *v1.Pod // nil if only its end is known
	started *metav1.Time
	ended   bool
}

// entry is what memory has of an object on the disk.
type entry struct {
	volume  string    // that a claim names
	version string    // that the server had last, of the same content
	read    time.Time // when the server answered it last
	gone    bool      // the server said since that there is none
	tried   time.Time // since when the server does not answer, or was last given time to
}

// Open opens the journal in a folder, or begins one, and reads what it has. It
// blocks on the disk.
//
// The error wraps journal.ErrKey or journal.ErrVersion where another key or
// another version of the agent wrote the journal, and says what to do; nothing
// was changed then. A plain journal where there is a key, and one that is older
// than its anchor, are put aside, and a new one begins: Refused says so. What is
// damaged is left out with a warning.
func Open(c Config) (*Store, error) {
	if c.Dir == "" || c.Log == nil {
		return nil, errors.New("open the journal of pods: Dir and Log are required")
	}
	if c.MaxBytes < 0 || c.MaxBytes > journal.MaxBatch {
		return nil, fmt.Errorf("open the journal of pods: MaxBytes is %d, not 0 to %d", c.MaxBytes, journal.MaxBatch)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	j, refused, err := openJournal(&c)
	if err != nil {
		return nil, fmt.Errorf("open the journal of pods: %w", err)
	}
	s, err := newStore(c, j)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal of pods: %w", err), j.Close())
	}
	s.refused = refused
	return s, nil
}

// newStore makes a store of what a journal has. The configuration is complete.
func newStore(c Config, j disk) (*Store, error) {
	s := &Store{
		config: c, journal: j,
		turn:    make(chan struct{}, 1),
		stored:  make(map[string]stored),
		unread:  make(map[string]bool),
		pods:    make(map[types.UID]*held),
		objects: make(map[key]*entry),
		dead:    make(map[types.UID]bool),
		seen:    seen{reads: make(map[key]*read)},
		link:    link{deadline: time.Now().Add(patience)},
	}
	s.turn <- struct{}{}
	return s, s.load()
}

// remedyMigrate is for a journal that is refused and was put aside.
const remedyMigrate = "if you trust it, stop the agent, run `tinylet journal-key --migrate` and start the agent; else remove it"

// openJournal opens the journal as it is. One that is not to be trusted, or
// that cannot be read where that is wanted, is put aside, and a new one begins;
// refused is why.
func openJournal(c *Config) (j *journal.Journal, refused, err error) {
	jc, err := journalConfig(c)
	if err != nil {
		return nil, nil, err
	}
	defer clear(jc.Key)
	j, err = journal.Open(jc)
	remedy, aside := "", c.Quarantine
	switch {
	case errors.Is(err, journal.ErrPlain) || errors.Is(err, journal.ErrStale):
		remedy, aside = remedyMigrate, true
	case errors.Is(err, journal.ErrKey) && c.Key == nil:
		remedy = "configure the key that it was sealed with"
	case errors.Is(err, journal.ErrKey):
		remedy = "give back the key that it was sealed with"
	case errors.Is(err, journal.ErrVersion):
		remedy = "run the version of tinylet that wrote it, or a later one"
	default:
		return j, nil, err
	}
	if !aside {
		return nil, nil, fmt.Errorf("%w: %s, or move the folder %q away to begin a new one", err, remedy, c.Dir)
	}
	folder, moveErr := quarantine(c.Dir)
	if moveErr != nil {
		return nil, nil, errors.Join(err, fmt.Errorf("put it aside: %w", moveErr))
	}
	c.Log.Warn("journal was refused and put aside", "dir", c.Dir, "aside", folder, "remedy", remedy, "error", err)
	refused = fmt.Errorf("%w: it was put aside as %q: %s", err, folder, remedy)
	j, err = journal.Open(jc)
	return j, refused, err
}

// journalConfig has the key, which the caller clears.
func journalConfig(c *Config) (journal.Config, error) {
	jc := journal.Config{Dir: c.Dir, Log: c.Log}
	if c.Key == nil {
		return jc, nil
	}
	key, err := c.Key()
	if err != nil {
		return jc, err
	}
	jc.Key, jc.Anchor = key, c.Anchor
	return jc, nil
}

// Refused returns why a journal was put aside at Open, and the remedy; nil if
// none was.
func (s *Store) Refused() error { return s.refused }

// Secrets returns namespace/name of the Secrets in the journal, sorted.
func (s *Store) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name := range s.stored {
		if k, ok := parseKey(name); ok && k.kind == objects.KindSecret {
			out = append(out, k.namespace+"/"+k.name)
		}
	}
	slices.Sort(out)
	return out
}

// Close ends the store. It waits for a write that is under way.
func (s *Store) Close() error {
	<-s.turn
	defer s.release()
	return s.journal.Close()
}

// Newest answers the wall time at which the newest value was written, as the
// clock had it then, or the zero time: on a board without a clock of its own
// it cannot be earlier.
func (s *Store) Newest() time.Time { return s.journal.Newest() }

// acquire takes the turn.
func (s *Store) acquire(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) release() { s.turn <- struct{}{} }
