package eviction

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/cgroups"
)

// memoryPressure is the PSI trigger: tasks have stalled on memory for a tenth of a second
// within a second. A board that reclaims pages now and then stays below it. A board that
// is about to run out of memory exceeds it before the kernel has to kill.
var memoryPressure = cgroups.Trigger{Stall: 100 * time.Millisecond, Window: time.Second}

// minEventInterval is the minimum interval between two notifications of one cgroup: a
// cgroup at its limit has a hundred events a second.
const minEventInterval = time.Second

// lateOOMCheck is how long after the last notification of memory pressure OOM kills are
// checked once more. A system that runs out of memory notifies before the kernel kills,
// and not again after it if the kill ends the pressure within the trigger's window.
const lateOOMCheck = 3 * time.Second

// Notifications are the kernel's notifications that trigger a check.
type Notifications interface {
	// MemoryPressure calls f while the tasks of the machine stall on memory.
	MemoryPressure(f func()) (stop func(), err error)
	// Memory and Pids call f at each event of a cgroup. Its argument is not nil if the
	// cgroup was replaced. A cgroup that does not exist is cgroups.ErrNotFound.
	Memory(cgroup string, f func(error)) (stop func(), err error)
	Pids(cgroup string, f func(error)) (stop func(), err error)
	// ID returns a number that another cgroup at the same path does not have.
	ID(cgroup string) (uint64, error)
}

// notifier watches the kernel's notifications for the thresholds. Its methods are for one
// goroutine; it calls trigger on another.
type notifier struct {
	source  Notifications // nil without cgroups
	trigger func()
	// oomCheck finds OOM kills; nil means none. It shares the machine's PSI trigger,
	// because all tasks cannot stall without some of them stalling. It is called on the
	// goroutines of the notification and of late.
	oomCheck func()
	log      *slog.Logger

	mu     sync.Mutex  // guards the next two
	late   *time.Timer // calls oomCheck after the last notification; nil before the first
	closed bool

	machine bool   // the machine is watched, or cannot be
	stop    func() // stops the watch of the machine; nil means not watched
	warned  bool
	// What stops the watches of the pods' cgroup; nil means not watched.
	memory, pids func()
	id           uint64 // ID of that cgroup
	// replaced is true if the pods' cgroup is not the one that is watched.
	replaced atomic.Bool
}

// watch starts to watch the machine, and the cgroup of all pods as soon as it exists, for
// the signals of the thresholds. It watches a cgroup that has replaced the former one: the
// kernel does not notify of a removed cgroup, and systemd removes the slice while it has
// no pod.
func (n *notifier) watch(pods string, thresholds []evictionapi.Threshold) {
	if n.source == nil {
		return
	}
	memory, pids := notifiedSignals(thresholds)
	if !n.machine && (memory || n.oomCheck != nil) {
		n.watchMachine(memory)
	}
	id := n.idOf(pods)
	if n.replaced.Swap(false) || id != n.id {
		n.closePods()
	}
	n.id = id
	if pods == "" {
		return
	}
	if memory && n.memory == nil {
		n.memory = n.started(n.source.Memory(pods, n.notified))
	}
	if pids && n.pids == nil {
		n.pids = n.started(n.source.Pids(pods, n.notified))
	}
}

// idOf returns 0 if there is no cgroup.
func (n *notifier) idOf(pods string) uint64 {
	if pods == "" {
		return 0
	}
	id, _ := n.source.ID(pods)
	return id
}

// watchMachine watches the machine's memory pressure, for thresholds of memory and for OOM
// kills. It is repeated at each check until it succeeds, or the kernel does not support
// it.
func (n *notifier) watchMachine(memory bool) {
	stop, err := n.source.MemoryPressure(func() {
		if memory {
			n.trigger()
		}
		if n.oomCheck != nil {
			n.oomCheck()
			n.checkOOMLater()
		}
	})
	if err == nil {
		n.stop = stop
	}
	n.machine = err == nil || errors.Is(err, cgroups.ErrPressure)
	if err == nil || n.warned {
		return
	}
	n.warned = true
	if !memory {
		n.log.Debug("cannot watch memory pressure", "error", err)
		return
	}
	if n.machine {
		n.log.Warn("memory pressure events (PSI) are unavailable", "effect", "eviction may react late",
			"error", err, "remedy", "`tinylet check` shows how to enable them")
		return
	}
	n.log.Warn("cannot watch memory pressure yet", "effect", "eviction may react late", "error", err)
}

// checkOOMLater calls oomCheck once more, lateOOMCheck after the last of several
// notifications, unless close was called.
func (n *notifier) checkOOMLater() {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
	case n.late == nil:
		n.late = time.AfterFunc(lateOOMCheck, n.oomCheck)
	default:
		n.late.Reset(lateOOMCheck)
	}
}

func (n *notifier) notified(err error) {
	if err != nil {
		n.replaced.Store(true)
		return
	}
	n.trigger()
}

// started returns what stops a watch. A watch that cannot start, as of a cgroup that does
// not exist yet, is tried again at the next check.
func (n *notifier) started(stop func(), err error) func() {
	if err == nil {
		return stop
	}
	if !errors.Is(err, cgroups.ErrNotFound) {
		n.log.Debug("cannot watch events of the pods' cgroup", "error", err)
	}
	return nil
}

// close stops all watches and late.
func (n *notifier) close() {
	n.closePods()
	if n.stop != nil {
		n.stop()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.late != nil {
		n.late.Stop()
	}
}

// closePods stops the watches of the pods' cgroup.
func (n *notifier) closePods() {
	for _, stop := range [...]func(){n.memory, n.pids} {
		if stop != nil {
			stop()
		}
	}
	n.memory, n.pids = nil, nil
}

// notifiedSignals reports which of the kernel's notifications the thresholds need.
func notifiedSignals(thresholds []evictionapi.Threshold) (memory, pids bool) {
	for i := range thresholds {
		switch thresholds[i].Signal {
		case evictionapi.MemoryAvailable, evictionapi.AllocatableMemoryAvailable:
			memory = true
		case evictionapi.PIDAvailable:
			pids = true
		default:
		}
	}
	return memory, pids
}

// KernelNotifications returns the notifications that a poller of the hierarchy delivers.
func KernelNotifications(poller *cgroups.Poller, tree *cgroups.Tree) Notifications {
	return &kernelNotifications{poller, tree}
}

type kernelNotifications struct {
	poller *cgroups.Poller
	tree   *cgroups.Tree
}

func (k *kernelNotifications) MemoryPressure(f func()) (func(), error) {
	return stopOf(k.poller.WatchMemoryPressure("/", memoryPressure, f))
}

func (k *kernelNotifications) Memory(cgroup string, f func(error)) (func(), error) {
	return stopOf(k.poller.WatchMemory(cgroup, minEventInterval, func(_ cgroups.MemoryEvents, err error) { f(err) }))
}

func (k *kernelNotifications) Pids(cgroup string, f func(error)) (func(), error) {
	return stopOf(k.poller.WatchPids(cgroup, minEventInterval, func(_ uint64, err error) { f(err) }))
}

func stopOf(w *cgroups.Watch, err error) (stop func(), _ error) {
	if err != nil {
		return nil, err
	}
	return w.Close, nil
}

func (k *kernelNotifications) ID(cgroup string) (uint64, error) { return k.tree.ID(cgroup) }
