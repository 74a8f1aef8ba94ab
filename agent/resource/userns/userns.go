// Package userns allocates ranges of the node's user and group IDs to pods with a
// user namespace (hostUsers: false, KEP-127). Each such pod has one range that no
// other pod has, from its first sandbox to its removal, across restarts of the agent
// and of the node. The range is stored in the file pods/<uid>/userns, in the
// kubelet's format (pkg/kubelet/userns), so that a kubelet and this agent can replace
// each other.
package userns

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rangeUnit is the number that all lengths and first IDs must be a multiple of.
const rangeUnit = 65536

// Errors of Get, for errors.Is.
var (
	// ErrExhausted means that every range is allocated.
	ErrExhausted = errors.New("all ranges of user IDs are in use")
	// ErrDamaged means that the pod's file has no valid range. Once the pod has no
	// sandbox, the caller can call Release to make Get allocate again.
	ErrDamaged = errors.New("user ID record of the pod is damaged")
)

// Config configures an Allocator.
type Config struct {
	// PodsDir holds a directory for each pod, named by its UID. It may not exist yet.
	PodsDir string
	// First is the node's first ID for pods, and Length the number of IDs, as
	// returned by Range.
	First, Length uint32
	// PerPod is the number of IDs for each pod
	// (KubeletConfiguration.userNamespaces.idsPerPod); 0 means 65536.
	PerPod uint32
	// MaxPods is the number of pods that the IDs must suffice for; 0 means one.
	MaxPods int
}

// Allocator allocates ranges of IDs. It is safe for concurrent use.
type Allocator struct {
	cfg  Config
	mu   sync.Mutex
	next uint32 // index of the next range to try: the one after the last
	used map[types.UID]record
}

// record holds the IDs of one pod.
type record struct {
	spans     []span // one, or several if err is set
	err       error  // why the IDs cannot be used
	unwritten bool   // the IDs may not be on disk
}

// New validates the configuration, with the rules of pkg/kubelet/userns, and reads
// the files of all pods with a directory. A damaged file is no error of New, but of
// Get. An I/O error is one of New: it is unknown which IDs the pod has.
func New(c Config) (*Allocator, error) {
	c.PerPod = cmp.Or(c.PerPod, rangeUnit)
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	a := &Allocator{cfg: c, used: map[types.UID]record{}}
	if err := a.load(); err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	return a, nil
}

func (c *Config) validate() error {
	switch {
	case c.PodsDir == "":
		return errors.New("PodsDir is required")
	case c.PerPod%rangeUnit != 0:
		return fmt.Errorf("%d IDs per pod: must be a multiple of %d", c.PerPod, rangeUnit)
	case c.First < c.PerPod:
		return fmt.Errorf("first ID is %d: must be at least %d, above the node's own IDs", c.First, c.PerPod)
	case c.First%c.PerPod != 0 || c.Length%c.PerPod != 0:
		return fmt.Errorf("%d IDs from %d on: both must be multiples of %d", c.Length, c.First, c.PerPod)
	case uint64(c.First)+uint64(c.Length) > math.MaxUint32+1:
		return fmt.Errorf("%d IDs from %d on: exceed the 32-bit ID space", c.Length, c.First)
	case int64(c.Length/c.PerPod) < int64(max(c.MaxPods, 1)):
		return fmt.Errorf("%d IDs suffice for %d pods, want %d", c.Length, c.Length/c.PerPod, max(c.MaxPods, 1))
	}
	return nil
}

func (a *Allocator) load() error {
	entries, err := os.ReadDir(a.cfg.PodsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pods directory: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		uid := types.UID(e.Name())
		rec, ok, err := a.read(uid)
		if err != nil {
			return fmt.Errorf("read user IDs of pod %q: %w", uid, err)
		}
		if ok {
			a.addRecord(uid, rec)
		}
	}
	return nil
}

// addRecord stores a record that was read. IDs claimed by two pods are unusable for both.
func (a *Allocator) addRecord(uid types.UID, rec record) {
	for _, other := range slices.Sorted(maps.Keys(a.used)) {
		old := a.used[other]
		if other == uid || !overlap(old.spans, rec.spans) {
			continue
		}
		rec.err = errors.Join(rec.err, fmt.Errorf("%w: IDs overlap with those of pod %q", ErrDamaged, other))
		old.err = errors.Join(old.err, fmt.Errorf("%w: IDs overlap with those of pod %q", ErrDamaged, uid))
		a.used[other] = old
	}
	a.used[uid] = rec
}

// Get returns the user namespace of a pod. It returns the same one until Release.
// Without an error, the range is on disk. Get blocks on the disk. Its error wraps
// ErrExhausted, ErrDamaged or an I/O error.
func (a *Allocator) Get(uid types.UID) (*runtimeapi.UserNamespace, error) {
	ns, err := a.get(uid)
	if err != nil {
		return nil, fmt.Errorf("user namespace of pod %q: %w", uid, err)
	}
	return ns, nil
}

func (a *Allocator) get(uid types.UID) (*runtimeapi.UserNamespace, error) {
	if err := checkUID(uid); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	rec, ok := a.used[uid]
	if !ok {
		// A kubelet may have allocated it since New.
		var err error
		if rec, ok, err = a.read(uid); err != nil {
			return nil, err
		}
		if ok {
			a.addRecord(uid, rec)
			rec = a.used[uid]
		}
	}
	if !ok {
		s, err := a.free()
		if err != nil {
			return nil, err
		}
		rec = record{spans: []span{s}, unwritten: true}
	}
	if rec.err != nil {
		return nil, rec.err
	}
	if rec.unwritten {
		// The range belongs to the pod even if the write fails: the file may exist.
		a.used[uid] = rec
		if err := a.write(uid, rec.spans[0]); err != nil {
			return nil, err
		}
		rec.unwritten = false
		a.used[uid] = rec
	}
	return rec.spans[0].namespace(), nil
}

// free returns an unallocated range. It allocates round-robin, so that a released
// range stays unused as long as possible.
func (a *Allocator) free() (span, error) {
	count := a.cfg.Length / a.cfg.PerPod
	for range count {
		s := span{first: a.cfg.First + a.next*a.cfg.PerPod, length: a.cfg.PerPod}
		a.next = (a.next + 1) % count
		taken := false
		for _, rec := range a.used {
			taken = taken || overlap(rec.spans, []span{s})
		}
		if !taken {
			return s, nil
		}
	}
	return span{}, fmt.Errorf("%w: %d ranges", ErrExhausted, count)
}

// Release frees the pod's range and removes its file. No sandbox of the pod may
// exist. Release is idempotent and blocks on the disk. After an error the range
// remains allocated.
func (a *Allocator) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := checkUID(uid)
	if err == nil {
		err = a.remove(uid)
	}
	if err != nil {
		return fmt.Errorf("release user namespace of pod %q: %w", uid, err)
	}
	delete(a.used, uid)
	return nil
}
