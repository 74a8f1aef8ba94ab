package diskusage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config configures a Meter. Its functions are called by one goroutine at a time.
type Config struct {
	// Pods returns the pods with disk usage, in the order in which to report them.
	Pods func(context.Context) ([]Pod, error)
	// Node is a directory on the node's file system, the agent's root directory.
	Node string
	// ImageFs calls the runtime's ImageFsInfo. May be nil.
	ImageFs func(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	Log     *slog.Logger

	// Fresh is how long results are reused without a new measurement; 0 means 10 s.
	Fresh time.Duration
	// Entries and Time limit the walks in each such interval, regardless of the
	// number of requests: the number of directory entries, and the time; 0 means
	// 10,000 and 100 ms. An unfinished walk continues in the next interval.
	Entries int
	Time    time.Duration
	// RemoteTimeout is the timeout per measurement for file systems that are not local; 0
	// means 1 s.
	RemoteTimeout time.Duration
}

// Meter measures on request. It keeps a few numbers for each place until the first
// request after the place is gone. Nothing runs between requests, except one
// goroutine for each file system that is not local and does not respond. Its methods
// are safe for concurrent use. They block on local disks, up to RemoteTimeout on
// other file systems, and on the functions of Config.
//
// A place that was not measured for lack of time has its previous values, with their
// Time. A place that was never walked completely has the usage counted so far, as a
// lower bound.
type Meter struct {
	cfg       Config
	mountinfo string
	statfs    func(path string, into *unix.Statfs_t) error
	endless   int // maximum number of entries of a walk

	sem        chan struct{} // a lock of the fields below, held while it has an element
	measuredAt time.Time     // start of the last measurement
	known      known

	guard Guard
}

// New returns a Meter. It measures nothing yet.
func New(cfg Config) (*Meter, error) {
	if cfg.Pods == nil || cfg.Node == "" || cfg.Log == nil {
		return nil, errors.New("diskusage: Pods, Node and Log are required")
	}
	cfg.Fresh = cmp.Or(cfg.Fresh, 10*time.Second)
	cfg.Entries = cmp.Or(cfg.Entries, 10_000)
	cfg.Time = cmp.Or(cfg.Time, 100*time.Millisecond)
	cfg.RemoteTimeout = cmp.Or(cfg.RemoteTimeout, time.Second)
	return &Meter{cfg: cfg, mountinfo: "/proc/self/mountinfo", statfs: statfs, endless: endless, sem: make(chan struct{}, 1)}, nil
}

// Pod returns the usage of a pod, with its containers in the given order. The result
// is empty, without an error, for a pod that was added since the last measurement. Pod
// returns an error if ctx ends, or if Config.Pods or the mount table cannot be read.
func (m *Meter) Pod(ctx context.Context, uid string, containers []string) (PodUsage, error) {
	if err := m.refresh(ctx); err != nil {
		return PodUsage{}, err
	}
	defer m.unlock()
	for i := range m.known.pods {
		if p := &m.known.pods[i]; p.uid == uid {
			return p.usage(m.known.node, containers), nil
		}
	}
	return PodUsage{}, nil
}

// Node returns the usage of the node's file systems. It returns an error as Pod does.
// If the runtime does not respond, Node logs it and omits its part.
func (m *Meter) Node(ctx context.Context) (NodeUsage, error) {
	if err := m.refresh(ctx); err != nil {
		return NodeUsage{}, err
	}
	defer m.unlock()
	return m.nodeUsage(ctx), nil
}

// Claims returns the usage of the file systems behind PersistentVolumeClaims, each
// once. It returns an error as Pod does.
func (m *Meter) Claims(ctx context.Context) ([]Claim, error) {
	if err := m.refresh(ctx); err != nil {
		return nil, err
	}
	defer m.unlock()
	return m.known.claims(), nil
}

// MeasureFully measures everything, with larger bounds than those of a request. It is for
// decisions: without earlier requests, the result of one request would be incomplete.
// It returns an error as Pod does. Its walks block for up to 3 s.
func (m *Meter) MeasureFully(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	return m.measure(ctx, bounds{entries: thoroughEntries, time: thoroughTime})
}

const (
	thoroughEntries = 1 << 20
	thoroughTime    = 3 * time.Second
)

// refresh acquires the lock, and measures everything unless the last results are fresh.
// The caller must call unlock unless refresh returns an error.
func (m *Meter) refresh(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	if !m.measuredAt.IsZero() && time.Since(m.measuredAt) < m.cfg.Fresh {
		return nil
	}
	if err := m.measure(ctx, bounds{entries: m.cfg.Entries, time: m.cfg.Time}); err != nil {
		m.unlock()
		return err
	}
	return nil
}

// lock acquires the lock, or returns an error when ctx ends.
func (m *Meter) lock(ctx context.Context) error {
	select {
	case m.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("measure disks: wait for another request: %w", context.Cause(ctx))
	}
}

func (m *Meter) unlock() { <-m.sem }
