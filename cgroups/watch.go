package cgroups

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// WatchMemory calls notify with the counters of memory.events, first soon after it
// returns and then after each change, but at most once in pause. The counters are those
// of the cgroup with all below it. They grow as long as the cgroup exists, so a caller
// that needs a difference keeps the last ones. It returns ErrController without the
// memory controller, and ErrNotFound without the cgroup. If the file cannot be read,
// notify gets an error, and is called again after the next change. For a cgroup that is
// removed, notify may be called once with ErrNotFound, and is not called again; most
// often it is not called at all.
func (p *Poller) WatchMemory(path string, pause time.Duration, notify func(MemoryEvents, error)) (*Watch, error) {
	return p.watchFile(path, fileMemoryEvents, pause, func(data []byte, err error) {
		var e MemoryEvents
		if err == nil && !parseEvents(data, &e) {
			err = unexpected(path, fileMemoryEvents, data)
		}
		notify(e, err)
	})
}

// WatchPids calls notify with how often a new task of the cgroup was rejected by its
// limit, or by that of a cgroup above it, as WatchMemory does.
func (p *Poller) WatchPids(path string, pause time.Duration, notify func(rejected uint64, err error)) (*Watch, error) {
	return p.watchFile(path, filePidsEvents, pause, func(data []byte, err error) {
		n, ok := lookup(data, "max")
		if err == nil && !ok {
			err = unexpected(path, filePidsEvents, data)
		}
		notify(n, err)
	})
}

// watchFile watches a file for whose changes the kernel has notifications. A file counts
// as changed when it is opened (kernfs_generic_poll in fs/kernfs/file.c).
func (p *Poller) watchFile(path, name string, pause time.Duration, notify func(data []byte, err error)) (*Watch, error) {
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
		notify(buf[:max(n, 0)], err)
		if errors.Is(err, ErrNotFound) {
			w.Close() // the kernel would report it as ready forever
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, err)
	}
	return w, nil
}

func unexpected(path, name string, data []byte) error {
	return fmt.Errorf("read %s of cgroup %s: unexpected text %.80q", name, path, data)
}
