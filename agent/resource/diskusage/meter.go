package diskusage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config is what a Meter works with. The funcs are called by one goroutine at
// a time.
type Config struct {
	// Pods answers the pods that have something on disks, in the order in
	// which they are to be told.
	Pods func(context.Context) ([]Pod, error)
	// Node is a directory on the node's file system, the agent's root
	// directory.
	Node string
	// ImageFs is the runtime's ImageFsInfo. May be nil.
	ImageFs func(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	Log     *slog.Logger

	// Fresh is for how long figures are answered without being measured
	// again; 0 is 10 s.
	Fresh time.Duration
	// Entries and Time bound the walks in each such time, whoever asks how
	// often: the directory entries that are looked at, and how long that may
	// take; 0 is 10,000 and 100 ms. A walk that is not done by then goes on
	// in the next.
	Entries int
	Time    time.Duration
	// Patience is how long, each time, file systems are waited for that are
	// not local; 0 is 1 s.
	Patience time.Duration
}

// Meter measures what is asked for, and keeps a few numbers for each place
// until it is asked again after the place is gone. Nothing runs meanwhile,
// except for what hangs in the kernel: one goroutine for each file system that
// is not local and does not answer. Its methods may be called at once; they
// block on local disks, for Patience on others, and on Config's funcs.
//
// A place that was not measured for want of time has the figures of before, by
// their Time. What has never been walked to the end has what was counted until
// now: it is that at least.
type Meter struct {
	cfg       Config
	mountinfo string
	statfs    func(path string, into *unix.Statfs_t) error
	endless   int // entries of a walk

	turn  chan struct{} // has room for whoever may touch what follows
	begun time.Time     // the last look at everything
	known known

	guard guard
}

// New makes a Meter. It measures nothing yet.
func New(cfg Config) (*Meter, error) {
	if cfg.Pods == nil || cfg.Node == "" || cfg.Log == nil {
		return nil, errors.New("make a meter of disks: Pods, Node and Log are needed")
	}
	if cfg.Fresh <= 0 {
		cfg.Fresh = 10 * time.Second
	}
	if cfg.Entries <= 0 {
		cfg.Entries = 10_000
	}
	if cfg.Time <= 0 {
		cfg.Time = 100 * time.Millisecond
	}
	if cfg.Patience <= 0 {
		cfg.Patience = time.Second
	}
	return &Meter{cfg: cfg, mountinfo: "/proc/self/mountinfo", statfs: statfs, endless: endless, turn: make(chan struct{}, 1)}, nil
}

// Pod tells of a pod, with its containers in the given order. Of a pod that
// has come since the last look it tells nothing yet. It fails if ctx ends, or
// Config.Pods fails.
func (m *Meter) Pod(ctx context.Context, uid string, containers []string) (PodUsage, error) {
	if err := m.look(ctx); err != nil {
		return PodUsage{}, err
	}
	defer m.leave()
	for i := range m.known.pods {
		if p := &m.known.pods[i]; p.uid == uid {
			return p.usage(m.known.node, containers), nil
		}
	}
	return PodUsage{}, nil
}

// Node tells of the node's file systems. It fails as Pod does; a runtime that
// does not answer is logged, and leaves its part out.
func (m *Meter) Node(ctx context.Context) (NodeUsage, error) {
	if err := m.look(ctx); err != nil {
		return NodeUsage{}, err
	}
	defer m.leave()
	return m.nodeUsage(ctx), nil
}

// Claims tells of the file systems behind PersistentVolumeClaims, each once.
// It fails as Pod does.
func (m *Meter) Claims(ctx context.Context) ([]Claim, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	return m.known.claims(), nil
}

// Thorough looks at everything anew, and takes the time for it: for who decides
// by the figures, and would have taken those of a request for nothing where
// nobody has asked before. It fails as Pod does, and blocks for 3 s of walks.
func (m *Meter) Thorough(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.leave()
	return m.measure(ctx, bounds{entries: thoroughEntries, time: thoroughTime})
}

const (
	thoroughEntries = 1 << 20
	thoroughTime    = 3 * time.Second
)

// look takes the turn, and looks at everything unless the figures are fresh.
// Without an error the caller leaves.
func (m *Meter) look(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	if !m.begun.IsZero() && time.Since(m.begun) < m.cfg.Fresh {
		return nil
	}
	if err := m.measure(ctx, bounds{entries: m.cfg.Entries, time: m.cfg.Time}); err != nil {
		m.leave()
		return err
	}
	return nil
}

// begin takes the turn.
func (m *Meter) begin(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("measure disks: wait for another request: %w", context.Cause(ctx))
	}
}

func (m *Meter) leave() { <-m.turn }
