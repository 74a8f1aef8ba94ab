package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/journal"
)

// DefaultMaxBytes is Config.MaxBytes where that is 0.
const DefaultMaxBytes = 32 << 20

// Config is what a Store needs.
type Config struct {
	// Dir is the folder that the journal has for itself, such as
	// /var/lib/tinylet/journal. It is made with mode 0700 if it is missing.
	Dir string
	// KeyFile is a file with the key that seals the journal (see KeyFile);
	// empty is none. It must not be on the card that the key is to protect.
	KeyFile string
	// Key answers the key in place of KeyFile, such as Keyring does; nil is
	// none. Without either, the journal is not sealed.
	Key func() ([]byte, error)
	// Quarantine has a journal that cannot be read, for its key or for its
	// version, put aside and a new one begun.
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
// was changed then. What is damaged is left out with a warning.
func Open(c Config) (*Store, error) {
	if c.Dir == "" || c.Log == nil {
		return nil, errors.New("open the journal of pods: Dir and Log are required")
	}
	if c.KeyFile != "" && c.Key != nil {
		return nil, errors.New("open the journal of pods: of KeyFile and Key only one can be set")
	}
	if c.MaxBytes < 0 || c.MaxBytes > journal.MaxBatch {
		return nil, fmt.Errorf("open the journal of pods: MaxBytes is %d, not 0 to %d", c.MaxBytes, journal.MaxBatch)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.KeyFile != "" {
		c.Key = KeyFile(c.KeyFile)
	}
	j, err := openJournal(&c)
	if err != nil {
		return nil, fmt.Errorf("open the journal of pods: %w", err)
	}
	s, err := newStore(c, j)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal of pods: %w", err), j.Close())
	}
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

// openJournal opens the journal as it is or, if that is wanted, puts one that
// cannot be read aside.
func openJournal(c *Config) (*journal.Journal, error) {
	jc := journal.Config{Dir: c.Dir, Log: c.Log}
	if c.Key != nil {
		key, err := c.Key()
		if err != nil {
			return nil, err
		}
		defer clear(key)
		jc.Key = key
	}
	j, err := journal.Open(jc)
	remedy := ""
	switch {
	case errors.Is(err, journal.ErrKey) && c.Key == nil:
		remedy = "configure the key that it was sealed with"
	case errors.Is(err, journal.ErrKey):
		remedy = "give back the key that it was sealed with"
	case errors.Is(err, journal.ErrVersion):
		remedy = "run the version of tinylet that wrote it, or a later one"
	default:
		return j, err
	}
	if !c.Quarantine {
		return nil, fmt.Errorf("%w: %s, or move the folder %q away to begin a new one", err, remedy, c.Dir)
	}
	aside, moveErr := quarantine(c.Dir)
	if moveErr != nil {
		return nil, errors.Join(err, fmt.Errorf("put it aside: %w", moveErr))
	}
	c.Log.Warn("the journal of pods cannot be read and was put aside; a new one begins",
		"dir", c.Dir, "aside", aside, "remedy", remedy, "err", err)
	return journal.Open(jc)
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
