package filewatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// entryEvents change what a name in a directory leads to.
	entryEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// goneEvents mean that a watch is lost, or that its directory has another path.
	goneEvents = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
)

// mu guards shared, the fields of its instance, and the changes of all Watches. No
// system call that resolves a path is made while it is held: such a call can hang.
var (
	mu     sync.Mutex
	shared *instance // nil while there is no Watch
)

// instance is an inotify instance with its reader.
type instance struct {
	fd     int
	file   *os.File      // of fd
	done   chan struct{} // the reader has ended
	users  map[*Watch]struct{}
	failed error // why the reader has ended; nil while it runs. It is not started again
	// interests are those of each watch descriptor. The kernel does not use a
	// descriptor again.
	interests map[int32][]interest
	// adding counts the placements in progress. Until none is, a descriptor without
	// an interest is kept: inotify_add_watch may just have returned it.
	adding int
}

// interest is what a Watch needs of one directory.
type interest struct {
	w     *Watch
	name  string // the entry that w's path leads through; "" means all entries
	path  string // the directory as given to Set, if name is ""
	mask  uint32
	round uint64 // the placement of w that needs it
}

// start returns a running instance.
func start() (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create inotify instance: %w", err)
	}
	i := &instance{
		fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		users: make(map[*Watch]struct{}), interests: make(map[int32][]interest),
	}
	go func() {
		defer close(i.done)
		i.read()
	}()
	return i, nil
}

// stop ends the reader and waits for it. The caller does not hold mu.
func (i *instance) stop() {
	_ = i.file.Close()
	<-i.done
}

// add watches a directory. fresh reports whether the interest is new. A directory
// that was just removed is no error: the interest in its name, which was added before,
// reports that.
func (i *instance) add(dir string, in interest) (fresh bool, err error) {
	const flags = unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_MASK_ADD | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	n, err := unix.InotifyAddWatch(i.fd, dir, in.mask|flags)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("watch directory %s: %w", dir, err)
	}
	mu.Lock()
	defer mu.Unlock()
	wd := int32(n)
	in.round = in.w.round
	for k := range i.interests[wd] {
		if old := &i.interests[wd][k]; old.w == in.w && old.name == in.name && old.path == in.path {
			old.mask |= in.mask
			old.round = in.round
			return false, nil
		}
	}
	i.interests[wd] = append(i.interests[wd], in)
	return true, nil
}

// drop removes the interests of w that its placement round does not need, and the
// watches without an interest. The caller holds mu.
func (i *instance) drop(w *Watch, round uint64) {
	for wd, all := range i.interests {
		all = slices.DeleteFunc(all, func(in interest) bool { return in.w == w && in.round != round })
		i.interests[wd] = all
		if len(all) == 0 && i.adding == 0 {
			delete(i.interests, wd)
			_, _ = unix.InotifyRmWatch(i.fd, uint32(wd)) // fails if the directory is gone
		}
	}
}

// read records events until the file is closed or fails.
func (i *instance) read() {
	var buf [4096]byte // more than one event with the longest name
	for {
		n, err := i.file.Read(buf[:])
		mu.Lock()
		if err != nil {
			i.failed = fmt.Errorf("read inotify events: %w", err)
			i.lose()
			mu.Unlock()
			return
		}
		i.record(buf[:n])
		mu.Unlock()
	}
}

// record records a batch of events. The caller holds mu.
func (i *instance) record(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		end := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events))
		name := bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00")
		events = events[end:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			i.lose()
			continue
		}
		for k := range i.interests[wd] {
			i.interests[wd][k].record(mask, name)
		}
	}
}

// lose records that events of any Watch may be lost. The caller holds mu.
func (i *instance) lose() {
	for w := range i.users {
		w.lost = true
		w.notify(Changes{All: true})
	}
}

// record records an event of the directory, or of its entry name.
func (in *interest) record(mask uint32, name []byte) {
	w := in.w
	switch {
	case mask&goneEvents != 0:
		w.lost = true
		w.notify(Changes{All: true})
	case mask&in.mask == 0:
	case len(name) == 0: // the directory's attributes
		if in.name == "" {
			w.notify(Changes{All: true})
		}
	case in.name == "":
		if w.config.Ignore == nil || !w.config.Ignore(string(name)) {
			w.notify(Changes{Entries: mask&entryEvents != 0})
			w.addName(in.path, name)
		}
	case in.name == string(name):
		w.lost = w.lost || mask&entryEvents != 0
		w.notify(Changes{All: true})
	}
}
