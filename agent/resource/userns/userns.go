// Package userns owns which user and group ids of the node belong to which
// pod that has a user namespace of its own (hostUsers: false, KEP-127). Each
// such pod has one range of ids that no other pod has, from its first
// sandbox to its removal, across restarts of the agent and of the board. The
// range is in the file pods/<uid>/userns, in the kubelet's form
// (pkg/kubelet/userns), so that either agent can take over from the other.
package userns

import (
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

// unit is what every number of ids must be a multiple of.
const unit = 65536

// Errors of Get, for errors.Is.
var (
	// ErrExhausted says that every range is a pod's.
	ErrExhausted = errors.New("every range of user ids is in use")
	// ErrDamaged says that the pod's file does not tell its range. Where no
	// sandbox of the pod is left, Release makes Get begin anew.
	ErrDamaged = errors.New("the record of the pod's user ids is damaged")
)

// Config is what ids there are.
type Config struct {
	// PodsDir holds a folder for each pod, named by its UID. It need not exist
	// yet.
	PodsDir string
	// First is the first id on the node for pods, and Length how many there
	// are, as Range answers them.
	First, Length uint32
	// PerPod is how many of them a pod gets
	// (KubeletConfiguration.userNamespaces.idsPerPod); 0 is 65536.
	PerPod uint32
	// MaxPods is how many pods there must be ids for; 0 is one.
	MaxPods int
}

// Allocator knows whose every range is. It is safe for concurrent use.
type Allocator struct {
	cfg  Config
	mu   sync.Mutex
	next uint32 // where to look for a free range: the one after the last
	used map[types.UID]record
}

// record is the ids of one pod.
type record struct {
	spans     []span // usually one
	err       error  // why they cannot be used
	unwritten bool   // they may not be on the disk
}

// New checks the configuration, with the rules of
// pkg/kubelet/userns, and reads which ids the pods have whose folders are
// there. A pod's file that is damaged is no error: it is one of Get's.
func New(c Config) (*Allocator, error) {
	if c.PerPod == 0 {
		c.PerPod = unit
	}
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
		return errors.New("no folder of pods is set")
	case c.PerPod%unit != 0:
		return fmt.Errorf("%d ids for each pod: it must be a multiple of %d", c.PerPod, unit)
	case c.First < c.PerPod:
		return fmt.Errorf("the first id is %d: it must be %d or more, above those of the node itself", c.First, c.PerPod)
	case c.First%c.PerPod != 0 || c.Length%c.PerPod != 0:
		return fmt.Errorf("%d ids from %d on: both must be multiples of %d", c.Length, c.First, c.PerPod)
	case uint64(c.First)+uint64(c.Length) > math.MaxUint32+1:
		return fmt.Errorf("%d ids from %d on: there are not that many", c.Length, c.First)
	case int64(c.Length/c.PerPod) < int64(max(c.MaxPods, 1)):
		return fmt.Errorf("%d ids are enough for %d pods, of %d", c.Length, c.Length/c.PerPod, max(c.MaxPods, 1))
	}
	return nil
}

// load reads the files of all pods.
func (a *Allocator) load() error {
	entries, err := os.ReadDir(a.cfg.PodsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the pods' folders: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		uid := types.UID(e.Name())
		rec, ok, err := a.read(uid)
		if err != nil {
			rec, ok = record{err: fmt.Errorf("%w: %w", ErrDamaged, err)}, true
		}
		if ok {
			a.note(uid, rec)
		}
	}
	return nil
}

// note keeps a record that was read. Ids of two pods are no pod's to use.
func (a *Allocator) note(uid types.UID, rec record) {
	for _, other := range slices.Sorted(maps.Keys(a.used)) {
		old := a.used[other]
		if other == uid || !overlap(old.spans, rec.spans) {
			continue
		}
		rec.err = errors.Join(rec.err, fmt.Errorf("%w: pod %q has the same", ErrDamaged, other))
		old.err = errors.Join(old.err, fmt.Errorf("%w: pod %q has the same", ErrDamaged, uid))
		a.used[other] = old
	}
	a.used[uid] = rec
}

// Get answers the user namespace of a pod: the same one until Release. When
// it answers without an error, the range is on the disk. It blocks on the
// disk. It fails with ErrExhausted or ErrDamaged, or an error of the disk.
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
		// The kubelet may have run it since New.
		var err error
		if rec, ok, err = a.read(uid); err != nil {
			return nil, err
		}
		if ok {
			a.note(uid, rec)
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
		// The range is the pod's even if this fails half-way: the file may be
		// there.
		a.used[uid] = rec
		if err := a.write(uid, rec.spans[0]); err != nil {
			return nil, err
		}
		rec.unwritten = false
		a.used[uid] = rec
	}
	return rec.spans[0].namespace(), nil
}

// free finds a range that no pod has. It goes round, so that a range rests
// for as long as possible before another pod gets it.
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
	return span{}, fmt.Errorf("%w: there are %d", ErrExhausted, count)
}

// Release gives the pod's range back, when nothing of the pod is left, and
// removes its file. It is idempotent and blocks on the disk. On an error the
// range stays the pod's.
func (a *Allocator) Release(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return fmt.Errorf("release user namespace of pod %q: %w", uid, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.remove(uid); err != nil {
		return fmt.Errorf("release user namespace of pod %q: %w", uid, err)
	}
	delete(a.used, uid)
	return nil
}
