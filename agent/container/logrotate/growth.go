package logrotate

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// changeNotifier notifies when an idle log is written to again.
type changeNotifier interface {
	// watch requests one notification of the next change of the file at path. It
	// reports whether that is possible.
	watch(path string) bool
	// unwatch cancels watch.
	unwatch(path string)
	// notifications returns a channel that has an item when take has changes. It is nil
	// if there are no notifications.
	notifications() <-chan struct{}
	// take returns the paths of the files that changed since the last call. nil means
	// that any file may have changed.
	take() []string
	// close ends all watches and waits for the goroutine.
	close()
}

// noNotifier is a changeNotifier without notifications. It is used if inotify is
// unavailable.
type noNotifier struct{}

func (noNotifier) watch(string) bool              { return false }
func (noNotifier) unwatch(string)                 {}
func (noNotifier) notifications() <-chan struct{} { return nil }
func (noNotifier) take() []string                 { return nil }
func (noNotifier) close()                         {}

// inotify is a changeNotifier with one-shot watches (inotify(7), IN_ONESHOT): however much
// a container writes, it wakes the agent once.
type inotify struct {
	fd      int
	f       *os.File
	pending chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	paths   map[int32]string // by watch descriptor
	watches map[string]int32
	changed []string // not nil
	all     bool     // the kernel's event queue overflowed
}

func newInotify() (changeNotifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch logs: %w", os.NewSyscallError("inotify_init1", err))
	}
	n := &inotify{
		fd: fd, f: os.NewFile(uintptr(fd), "inotify"),
		pending: make(chan struct{}, 1), done: make(chan struct{}),
		paths: map[int32]string{}, watches: map[string]int32{}, changed: []string{},
	}
	go n.read()
	return n, nil
}

func (n *inotify) watch(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	wd, err := unix.InotifyAddWatch(n.fd, path, unix.IN_MODIFY|unix.IN_ONESHOT|unix.IN_DONT_FOLLOW)
	if err != nil {
		return false
	}
	if old, ok := n.watches[path]; ok && old != int32(wd) {
		n.drop(old)
	}
	n.paths[int32(wd)], n.watches[path] = path, int32(wd)
	return true
}

func (n *inotify) unwatch(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if wd, ok := n.watches[path]; ok {
		delete(n.watches, path)
		n.drop(wd)
	}
}

// drop removes a watch. The kernel may have removed it already.
func (n *inotify) drop(wd int32) {
	delete(n.paths, wd)
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
}

func (n *inotify) notifications() <-chan struct{} { return n.pending }

func (n *inotify) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.changed
	if n.all {
		out = nil
	}
	n.changed, n.all = []string{}, false
	return out
}

func (n *inotify) close() {
	_ = n.f.Close() // ends read
	<-n.done
}

// read handles events until the file is closed or a read fails.
func (n *inotify) read() {
	defer close(n.done)
	var buf [64 * unix.SizeofInotifyEvent]byte
	for {
		got, err := n.f.Read(buf[:])
		if err != nil || got <= 0 {
			return
		}
		if n.record(buf[:got]) {
			select {
			case n.pending <- struct{}{}:
			default: // an item is pending
			}
		}
	}
}

// record records the files of the kernel's events, and reports whether there are any of a
// watched file, or events were lost.
func (n *inotify) record(events []byte) (any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := unix.SizeofInotifyEvent + int(min(binary.NativeEndian.Uint32(events[12:]), uint32(len(events))))
		events = events[min(size, len(events)):]
		path, known := n.paths[wd]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			n.all, any = true, true
		case known:
			// The file was changed or removed; either ends the watch.
			delete(n.paths, wd)
			if n.watches[path] == wd {
				delete(n.watches, path)
			}
			n.changed, any = append(n.changed, path), true
		}
	}
	return any
}
