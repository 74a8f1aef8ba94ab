package agent

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
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

// afterSign is when kills are looked for a second time after the last sign of
// memory pressure. A system that runs out gives the sign before the kernel kills,
// and none after it, where the kill ends the pressure within a trigger's window.
const afterSign = 3 * time.Second

// signs are what the kernel tells of memory and process IDs by itself. They
// are for one goroutine, but look is called by another.
type signs struct {
	// machine has told called while the machine's tasks wait for memory.
	machine func(told func()) error
	// memory and tasks have told called at each event of the pods' group, or
	// with an error when it is another group than before.
	memory, tasks func(pods string, told func(error)) (end func(), err error)
	// number is that of a group, which another one at its path has not; nil
	// where that cannot be.
	number func(pods string) (uint64, error)
	look   func()
	// killed looks for what the kernel has killed; nil is nobody. It has the
	// machine's signs, too: all tasks cannot wait without some of them waiting,
	// so who wants to hear of either hears it by the trigger of some.
	killed func()
	log    *slog.Logger

	late   *time.Timer // calls killed after the last sign; nil before the first
	hears  bool        // the machine is watched, or cannot be
	warned bool
	// What ends the watches of the pods' group; nil is not watched.
	ofMemory, ofTasks func()
	group             uint64 // the number of that
	// broken says that the pods' group is another one than was watched.
	broken atomic.Bool
}

// hear has the signs come from a poller of the hierarchy.
func (s *signs) hear(p *cgroups.Poller, tree *cgroups.Tree) {
	s.number = tree.ID
	s.machine = func(told func()) error {
		_, err := p.WatchPressure("/", cgroups.ResourceMemory, shortOfMemory, told)
		return err
	}
	s.memory = func(pods string, told func(error)) (func(), error) {
		w, err := p.WatchMemory(pods, signPause, func(_ cgroups.MemoryEvents, err error) { told(err) })
		if err != nil {
			return nil, err
		}
		return w.Close, nil
	}
	s.tasks = func(pods string, told func(error)) (func(), error) {
		w, err := p.WatchPids(pods, signPause, func(_ uint64, err error) { told(err) })
		if err != nil {
			return nil, err
		}
		return w.Close, nil
	}
}

// watch begins to watch the machine, and the group of all pods, as soon as
// there is one, for what the thresholds are of. One that took its place is
// watched in its place: the kernel does not tell that a group is gone, and
// systemd takes away the slice that no pod is in.
func (s *signs) watch(pods string, thresholds []evictionapi.Threshold) {
	if s.machine == nil {
		return
	}
	memory, tasks := concerns(thresholds)
	if !s.hears && (memory || s.killed != nil) {
		s.watchMachine(memory)
	}
	group := s.numberOf(pods)
	if s.broken.Swap(false) || group != s.group {
		s.close()
	}
	s.group = group
	if pods == "" {
		return
	}
	if memory && s.ofMemory == nil {
		s.ofMemory = s.keep(s.memory(pods, s.told))
	}
	if tasks && s.ofTasks == nil {
		s.ofTasks = s.keep(s.tasks(pods, s.told))
	}
}

// numberOf is 0 where there is no group.
func (s *signs) numberOf(pods string) uint64 {
	if s.number == nil || pods == "" {
		return 0
	}
	id, _ := s.number(pods)
	return id
}

// watchMachine watches for the thresholds, where they are of memory, and for
// what is killed. It is repeated at each look until it succeeds, or the kernel
// cannot do it at all.
func (s *signs) watchMachine(memory bool) {
	err := s.machine(func() {
		if memory {
			s.look()
		}
		if s.killed != nil {
			s.killed()
			s.killedLate()
		}
	})
	s.hears = err == nil || errors.Is(err, cgroups.ErrPressure)
	if err == nil || s.warned {
		return
	}
	s.warned = true
	if !memory {
		s.log.Debug("memory pressure is not watched: a system that runs out of memory is noticed when it hits a pod", "error", err)
		return
	}
	if s.hears {
		s.log.Warn("the kernel gives no sign when memory runs short: pods are evicted later, when their memory comes to a limit or the node is looked at for another reason",
			"error", err, "remedy", "`tinylet check` tells how to switch it on")
		return
	}
	s.log.Warn("the kernel's signs of memory pressure cannot be heard yet: until then pods are evicted later", "error", err)
}

// killedLate has killed called once more, afterSign after the last of several
// signs. It is for the goroutine of the machine's signs.
func (s *signs) killedLate() {
	if s.late == nil {
		s.late = time.AfterFunc(afterSign, s.killed)
		return
	}
	s.late.Reset(afterSign)
}

func (s *signs) told(err error) {
	if err != nil {
		s.broken.Store(true)
		return
	}
	s.look()
}

// keep is the end of a watch. One that cannot begin, as of a group that does not
// exist yet, is tried again at the next look.
func (s *signs) keep(end func(), err error) func() {
	if err == nil {
		return end
	}
	if !errors.Is(err, cgroups.ErrNotFound) {
		s.log.Debug("events of the pods' cgroup cannot be heard", "error", err)
	}
	return nil
}

// close ends the watches of the pods' group.
func (s *signs) close() {
	for _, end := range [...]func(){s.ofMemory, s.ofTasks} {
		if end != nil {
			end()
		}
	}
	s.ofMemory, s.ofTasks = nil, nil
}

// concerns says what the thresholds are of that the kernel tells of.
func concerns(thresholds []evictionapi.Threshold) (memory, tasks bool) {
	for i := range thresholds {
		switch thresholds[i].Signal {
		case evictionapi.MemoryAvailable, evictionapi.AllocatableMemoryAvailable:
			memory = true
		case evictionapi.PIDAvailable:
			tasks = true
		default:
		}
	}
	return memory, tasks
}
