package cgroups

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// State is what cgroup.events says of a group and all below it.
type State struct {
	// Populated is whether there are processes, Frozen whether all of them
	// stand still.
	Populated, Frozen bool
}

// WatchMemory calls told with what memory.events counts, once soon after and
// then after each change, but no more often than once in pause. The counts are
// of the group and all below it, and grow as long as the group lives: who
// wants a difference keeps the one before. A group without the memory
// controller gives ErrController, one that does not exist ErrNotFound. told gets
// an error where the file cannot be read, and further calls. A group that is
// removed may be told of once, as ErrNotFound, and then nothing more; most often
// it is not told of.
func (p *Poller) WatchMemory(path string, pause time.Duration, told func(EventFigures, error)) (*Watch, error) {
	return p.watchFile(path, fileMemoryEvents, pause, func(data []byte, err error) {
		var f EventFigures
		if err == nil && !parseKeyed(data, &f) {
			err = unreadable(fileMemoryEvents, data)
		}
		told(f, err)
	})
}

// WatchState calls told with what cgroup.events says, with the promises of
// WatchMemory. Before a group can be removed it is told to have no processes.
func (p *Poller) WatchState(path string, told func(State, error)) (*Watch, error) {
	return p.watchFile(path, fileEvents, 0, func(data []byte, err error) {
		var s State
		if err == nil && !parseState(data, &s) {
			err = unreadable(fileEvents, data)
		}
		told(s, err)
	})
}

// WatchPids calls told with how often the group, or one above it that it was
// bounded by, had no room for one more task, with the promises of WatchMemory.
func (p *Poller) WatchPids(path string, pause time.Duration, told func(refused uint64, err error)) (*Watch, error) {
	return p.watchFile(path, filePidsEvents, pause, func(data []byte, err error) {
		n, ok := lookup(data, "max")
		if err == nil && !ok {
			err = unreadable(filePidsEvents, data)
		}
		told(n, err)
	})
}

// watchFile watches a file whose changes the kernel tells. A fresh file counts
// as changed (kernfs_generic_poll in fs/kernfs/file.c).
func (p *Poller) watchFile(path, name string, pause time.Duration, told func(data []byte, err error)) (*Watch, error) {
	fd, err := p.openIn(path, name, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("watch cgroup: %w", err)
	}
	var buf [512]byte
	w, err := p.add(fd, unix.EPOLLPRI|unix.EPOLLONESHOT, pause, func(w *Watch) {
		n, err := w.read(buf[:])
		if err != nil {
			err = fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
		}
		told(buf[:max(n, 0)], err)
		if errors.Is(err, ErrNotFound) {
			w.Close() // the kernel has it ready for ever
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, err)
	}
	return w, nil
}

// parseState reads cgroup.events.
func parseState(data []byte, into *State) bool {
	populated, ok := lookup(data, "populated")
	if !ok {
		return false
	}
	frozen, _ := lookup(data, "frozen") // since Linux 5.2
	*into = State{Populated: populated != 0, Frozen: frozen != 0}
	return true
}

func unreadable(name string, data []byte) error {
	return fmt.Errorf("read %s: %.80q cannot be understood", name, data)
}
