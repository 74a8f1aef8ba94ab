// Package logrotate rotates container logs so that they do not fill the disk.
// The names of the rotated files are the kubelet's
// (pkg/kubelet/logs/container_log_manager.go):
//
//	0.log                       the runtime writes here
//	0.log.20260102-150405       rotated last, plain, for slow readers
//	0.log.20260102-140000.gz    rotated before
//
// The agent may be killed and the power may fail at any step: no line that was on disk is
// lost, and the next rotation removes what an interrupted one left. Files with other names
// are not modified.
//
// inotify notifies when an idle log is written to again. Until then the log is checked
// every 5 minutes.
package logrotate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reopener is the part of the container runtime that rotation uses. After
// ReopenContainerLog the container writes to a new file with the old name.
type Reopener interface {
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// Log is the log of one running container.
type Log struct {
	// ID is the container ID.
	ID string
	// Path is the absolute path of the file that the runtime writes to.
	Path string
}

// Config configures a Rotator.
type Config struct {
	Reopen Reopener
	// Containers lists the logs of the running containers. Run calls it at each check:
	// when a log is due, after a notification, and at least every five minutes. It must
	// not block for long.
	Containers func() []Log
	// AfterCheck is called after each check of the logs that are due, for other checks
	// that can run while the agent is awake. It must not block. nil is none.
	AfterCheck func()
	// Notify sends to slot, without blocking, after each change of the result
	// of Containers, until cancel is called. If Notify is nil, a started
	// container is found within five minutes.
	Notify func(slot chan<- struct{}) (cancel func())
	// MaxSize is the size in bytes from which a log is rotated; negative
	// disables rotation.
	MaxSize int64
	// MaxFiles, 2 or more, is the maximum number of files of one container, including
	// the one that the runtime writes to. Fewer are kept if they have grown far larger
	// than MaxSize before they could be rotated: the rotated files take at most
	// 2*MaxSize*MaxFiles bytes in total, unless there is only one.
	MaxFiles int
	// Workers is how many logs are rotated at the same time; 0 is one.
	Workers int
	// Interval is the minimum time between two checks of one log; 0 is 10 s. A log that
	// would reach MaxSize sooner is checked sooner, but at most once a second. A log that
	// is due within a quarter of Interval is checked together with others.
	Interval time.Duration
	Log      *slog.Logger
}

// Limits of the schedule.
const (
	defaultInterval = 10 * time.Second
	// maxCheckInterval is the maximum time between two checks. It covers changes
	// without a notification.
	maxCheckInterval = 5 * time.Minute
	// assumedRate is the assumed maximum growth of a log in bytes per second, until a
	// faster one is measured.
	assumedRate = 1 << 20
	// minCheckInterval is the minimum time between two checks of a log that grows faster
	// than assumedRate, or by more than MaxSize in an interval.
	minCheckInterval = time.Second
)

// Rotator rotates logs.
type Rotator struct {
	cfg         Config
	changed     chan struct{}
	newNotifier func() (changeNotifier, error) // replaced in tests

	logs map[string]*state // by path; only used by Run
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Rotator, error) {
	if c.Reopen == nil || c.Containers == nil || c.Log == nil {
		return nil, errors.New("logrotate: Reopen, Containers and Log are required")
	}
	if c.MaxFiles < 2 || c.MaxSize == 0 {
		return nil, fmt.Errorf("logrotate: MaxFiles %d must be at least 2 and MaxSize %d must not be 0", c.MaxFiles, c.MaxSize)
	}
	c.Workers = max(c.Workers, 1)
	if c.Interval <= 0 {
		c.Interval = defaultInterval
	}
	return &Rotator{
		cfg: c, changed: make(chan struct{}, 1), newNotifier: newInotify,
		logs: map[string]*state{},
	}, nil
}

// Run rotates logs that grow too large until ctx ends. It then waits for the
// rotations in progress and returns nil. It logs failures and retries with
// increasing delays. It must not run twice at the same time.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.MaxSize < 0 {
		<-ctx.Done()
		return nil
	}
	events, err := r.newNotifier()
	if err != nil {
		r.cfg.Log.Warn("cannot watch container logs, poll them", "error", err)
		events = noNotifier{}
	}
	defer events.close()
	if r.cfg.Notify != nil {
		defer r.cfg.Notify(r.changed)()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.changed:
		case <-events.notifications():
			r.makeDue(events.take(), time.Now())
		}
		timer.Reset(r.check(ctx, events, time.Now()))
		if r.cfg.AfterCheck != nil {
			r.cfg.AfterCheck()
		}
	}
}

// LogsOf returns the logs of the running containers of pods, for Config.Containers. It
// returns none before node returns a node.
func LogsOf(entries []pod.Entry, node func() (n *criconfig.Node, ok bool)) (out []Log) {
	n, ok := node()
	if !ok {
		return nil
	}
	for i := range entries {
		e := &entries[i]
		for c := range e.Running() {
			out = append(out, Log{ID: c.ID, Path: criconfig.ContainerLogPath(e.Pod, n, c.Name, c.Restarts)})
		}
	}
	return out
}
