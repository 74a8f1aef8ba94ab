package agent

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/evict"
	"github.com/tinylet/tinylet/cgroups"
)

// shortOfMemory is when the kernel gives a sign: when tasks have waited for
// memory for a tenth of a second within a second. A board that reclaims pages
// now and then stays below it, and one that is about to run out passes it
// before the kernel has to kill.
var shortOfMemory = cgroups.Trigger{Stall: 100 * time.Millisecond, Window: time.Second}

// signPause is the shortest time between two signs of a group: one that lives
// at its limit gives a hundred a second.
const signPause = time.Second

// signs are what the kernel tells of memory and process IDs by itself. Its
// methods but look are for one goroutine.
type signs struct {
	poller *cgroups.Poller // nil gives no signs
	look   func()
	log    *slog.Logger

	begun   bool
	watches []*cgroups.Watch // of the pods' group
	// broken says that the pods' group is another one than was watched.
	broken atomic.Bool
}

// watch begins to watch the machine, and the group of all pods once there is
// one.
func (s *signs) watch(pods string, thresholds []evict.Threshold) {
	if s.poller == nil {
		return
	}
	memory, tasks := concerns(thresholds)
	if !s.begun {
		s.begun = true
		if memory {
			s.machine()
		}
	}
	if s.broken.Swap(false) {
		s.close()
	}
	if len(s.watches) > 0 {
		return
	}
	if memory {
		s.keep(s.poller.WatchMemory(pods, signPause, func(_ cgroups.EventFigures, err error) { s.told(err) }))
	}
	if tasks {
		s.keep(s.poller.WatchPids(pods, signPause, func(_ uint64, err error) { s.told(err) }))
	}
}

// machine watches the pressure on the whole machine.
func (s *signs) machine() {
	_, err := s.poller.WatchPressure("/", cgroups.ResourceMemory, shortOfMemory, s.look)
	switch {
	case errors.Is(err, cgroups.ErrPressure):
		s.log.Warn("the kernel gives no sign when memory runs short: pods are evicted later, when their memory comes to a limit or the node is looked at for another reason",
			"error", err, "remedy", "`tinylet check` tells how to switch it on")
	case err != nil:
		s.log.Warn("the kernel's signs of memory pressure cannot be heard: pods are evicted later", "error", err)
	}
}

func (s *signs) told(err error) {
	if err != nil {
		s.broken.Store(true)
		return
	}
	s.look()
}

// keep keeps a watch. A group that does not exist yet is tried again at the
// next look.
func (s *signs) keep(w *cgroups.Watch, err error) {
	switch {
	case err == nil:
		s.watches = append(s.watches, w)
	case !errors.Is(err, cgroups.ErrNotFound):
		s.log.Debug("events of the pods' cgroup cannot be heard", "error", err)
	}
}

// close ends the watches of the pods' group.
func (s *signs) close() {
	for _, w := range s.watches {
		w.Close()
	}
	s.watches = nil
}

// concerns says what the thresholds are of that the kernel tells of.
func concerns(thresholds []evict.Threshold) (memory, tasks bool) {
	for i := range thresholds {
		switch thresholds[i].Signal {
		case evict.MemoryAvailable, evict.AllocatableMemoryAvailable:
			memory = true
		case evict.PIDAvailable:
			tasks = true
		default:
		}
	}
	return memory, tasks
}
