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

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/wait"
)

// defaultMaxBytes bounds the content of the journal. The file may be twice as large.
const defaultMaxBytes = 32 << 20

// Config configures a Store. Dir and Log are required.
type Config struct {
	// Dir is the journal's own directory, such as /var/lib/tinylet/journal. It
	// is created with mode 0700 if it does not exist.
	Dir string
	// Key returns the key that seals the journal, as KeyFile, Keyring and
	// package tpmkey do. If it is nil, the journal is not sealed.
	Key func() ([]byte, error)
	// Anchor makes Open reject an older copy of the journal; nil means none. It
	// requires a key.
	Anchor journal.Anchor
	// Contacted reports whether the API server has responded to any component since
	// the start. It must not block. If it is nil, only reads of this package
	// count.
	Contacted func() bool
	// MayRead reports whether a Reader may read from the API server what the
	// journal has. Until the API server has listed the node's pods, it denies
	// access to objects of pods that were deleted meanwhile. It must not block.
	// If it is nil, a Reader always may.
	MayRead func() bool
	// Started returns the start time of a pod from its latest status, or nil.
	// It must not block. If it is nil, the pod's own status is used.
	Started func(uid types.UID) *metav1.Time
	Log     *slog.Logger
}

// disk is implemented by *journal.Journal. Tests inject faults through it.
type disk interface {
	Keys(prefix string) []string
	Read(key string) ([]byte, bool, error)
	Write(changes ...journal.Change) error
	Newest() time.Time
	Unlocked(ctx context.Context) error
	Close() error
}

// Store stores pods and the objects that they use. All methods are safe for
// concurrent use; those that write block on the disk. It has no goroutines, and
// does nothing unless called.
type Store struct {
	config        Config
	maxBytes      int64
	journal       disk
	quarantineErr error // why Open quarantined a journal; nil if it did not

	// writeToken holds the write token. Its holder may write to the journal.
	writeToken chan struct{}

	// mu guards the fields below. Changing the keys of stored, or pods, requires
	// the write token as well, except that Forget removes from pods and adds to
	// dead without it. The write token is taken before mu. mu is not held while
	// waiting for the disk.
	mu          sync.Mutex
	stored      map[string]stored // all values in the journal, by key
	size        int64             // total size of stored in bytes
	unread      map[string]bool   // keys of pods and claims that do not decode
	pods        map[types.UID]*podState
	objects     map[key]*entry
	dead        map[types.UID]uint64 // forgotten, but still on disk; the value is that of forgets
	forgets     uint64               // number of calls of Forget
	recentReads recentReads
	link        link
	failing     bool               // the last write of an object failed
	incomplete  map[types.UID]bool // pods whose missing objects Reader.Run reads

	completing wait.Wakeup // incomplete has another pod
}

// stored describes one value on disk.
type stored struct {
	size int64
	sum  sum
}

// podState is the in-memory state of a pod.
type podState struct {
	outline *v1.Pod // nil if only the terminal status is known
	started *metav1.Time
	ended   bool
	// complete is set by the first call of Complete.
	complete bool
}

// entry is the in-memory state of an object on disk.
type entry struct {
	volume   string    // the volume that a claim names
	version  string    // latest version on the API server with the same content
	read     time.Time // when the API server last returned it
	notFound bool      // the API server reported since that it does not exist
	tried    time.Time // start of the last wait with the full timeout, if it failed
}

// Open opens the journal in a directory, or creates one, and loads it. It
// blocks on the disk.
//
// If the journal was written with another key or by another version of the
// agent, the error wraps journal.ErrKey or journal.ErrVersion and names the
// remedy, and nothing was changed. A plain journal with a key configured, and
// one that is older than its anchor, are quarantined, and a new one is started;
// QuarantineReason then returns the reason. Damaged values are skipped with a warning.
func Open(c Config) (*Store, error) {
	if c.Dir == "" || c.Log == nil {
		return nil, errors.New("open pod journal: Dir and Log are required")
	}
	j, refused, err := openJournal(&c)
	if err != nil {
		return nil, fmt.Errorf("open pod journal: %w", err)
	}
	s, err := newStore(c, j)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open pod journal: %w", err), j.Close())
	}
	s.quarantineErr = refused
	return s, nil
}

// newStore returns a store with the content of a journal. The configuration
// must be complete.
func newStore(c Config, j disk) (*Store, error) {
	s := &Store{
		config: c, journal: j, maxBytes: defaultMaxBytes,
		writeToken:  make(chan struct{}, 1),
		stored:      make(map[string]stored),
		unread:      make(map[string]bool),
		pods:        make(map[types.UID]*podState),
		objects:     make(map[key]*entry),
		dead:        make(map[types.UID]uint64),
		recentReads: make(recentReads),
		incomplete:  make(map[types.UID]bool),
		completing:  wait.NewWakeup(),
		link:        link{deadline: time.Now().Add(firstContactTimeout)},
	}
	s.writeToken <- struct{}{}
	return s, s.load()
}

// remedyMigrate is the remedy for a journal that is not trusted and was quarantined.
const remedyMigrate = "if you trust it, stop the agent, run `tinylet journal-key --migrate` and start the agent; else remove it"

// openJournal opens the journal. A journal that is untrusted is quarantined, and a new one is
// started; refused is the reason.
func openJournal(c *Config) (j *journal.Journal, refused, err error) {
	jc, err := journalConfig(c)
	if err != nil {
		return nil, nil, err
	}
	defer clear(jc.Key)
	j, err = journal.Open(jc)
	remedy := ""
	switch {
	case errors.Is(err, journal.ErrPlain) || errors.Is(err, journal.ErrStale):
	case errors.Is(err, journal.ErrKey) && c.Key == nil:
		remedy = "configure the key that it was sealed with"
	case errors.Is(err, journal.ErrKey):
		remedy = "restore the key that it was sealed with"
	case errors.Is(err, journal.ErrVersion):
		remedy = "run the version of tinylet that wrote it, or a later one"
	default:
		return j, nil, err
	}
	if remedy != "" {
		return nil, nil, fmt.Errorf("%w: %s, or move the directory %q away to start a new one", err, remedy, c.Dir)
	}
	folder, moveErr := quarantine(c.Dir)
	if moveErr != nil {
		return nil, nil, errors.Join(err, fmt.Errorf("quarantine it: %w", moveErr))
	}
	c.Log.Warn("quarantined rejected journal", "dir", c.Dir, "aside", folder, "remedy", remedyMigrate, "error", err)
	refused = fmt.Errorf("%w: quarantined as %q: %s", err, folder, remedyMigrate)
	j, err = journal.Open(jc)
	return j, refused, err
}

// journalConfig returns the configuration with the key, which the caller
// clears.
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

// QuarantineReason returns why Open quarantined a journal, and the remedy. It returns
// nil if Open did not.
func (s *Store) QuarantineReason() error { return s.quarantineErr }

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

// Close closes the store. It waits for a write in progress.
func (s *Store) Close() error {
	<-s.writeToken
	defer s.release()
	return s.journal.Close()
}

// Newest returns the wall time, by the clock at that time, at which the newest
// value was written, or the zero time. On a node without a real-time clock it
// is a lower bound of the current time.
func (s *Store) Newest() time.Time { return s.journal.Newest() }

// acquire takes the write token.
func (s *Store) acquire(ctx context.Context) error {
	select {
	case <-s.writeToken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) release() { s.writeToken <- struct{}{} }

// Unlocked returns an error if the lock of the store or of its journal is not
// released before ctx ends. A wait for the disk does not count.
func (s *Store) Unlocked(ctx context.Context) error {
	if err := health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock); err != nil {
		return err
	}
	return s.journal.Unlocked(ctx)
}
