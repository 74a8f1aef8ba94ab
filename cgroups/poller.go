package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for the kernel's notifications about any number of cgroups, in one
// goroutine (Run). It reads nothing between two events. Each watch costs one open file,
// and the goroutine a thread that sleeps in the kernel. The library's EventChan has one
// inotify instance and one goroutine for each cgroup, and no other events than those of
// memory.events.
//
// Go's poller cannot watch the epoll instance, since events of PSI would be lost: reading
// the state of a trigger takes its event (psi_trigger_poll in kernel/sched/psi.c), and
// a nested epoll reads it.
//
// The methods are safe for concurrent use.
type Poller struct {
	root string

	mu      sync.Mutex // locked after that of a Watch
	epoll   int        // -1 after Run has failed, until it runs again
	wake    int        // an eventfd that ends Run
	running bool
	closed  bool
	last    int32 // last ID; that of wake is 0
	watches map[int32]*Watch
}

// Watch is one file that a Poller waits for, until Close. Run calls its callback, one
// call after another. The callback must not block.
type Watch struct {
	poller *Poller
	id     int32
	events uint32
	pause  time.Duration
	ready  func(w *Watch)

	mu    sync.Mutex // guards the descriptor against its reuse
	fd    int        // -1 when closed
	timer *time.Timer
}

// NewPoller returns a Poller of the hierarchy. The caller must call Run, or Close if it
// does not.
func (t *Tree) NewPoller() (*Poller, error) {
	p := &Poller{root: t.root, epoll: -1, wake: -1, watches: map[int32]*Watch{}}
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// open creates the epoll instance and adds all watches.
func (p *Poller) open() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("wait for events of cgroups: create epoll instance: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	p.epoll, p.wake = epoll, wake
	for _, w := range p.watches {
		if err == nil {
			err = p.control(unix.EPOLL_CTL_ADD, w)
		}
	}
	if err != nil {
		p.free()
		return fmt.Errorf("wait for events of cgroups: %w", err)
	}
	return nil
}

// Run calls the callbacks of the watches until ctx ends or Close is called. Then it
// closes the Poller and all watches, and returns nil. After an error all watches remain:
// Run can be called again, and calls each callback once, since events may have been
// missed. Only one Run may be active at a time.
func (p *Poller) Run(ctx context.Context) error {
	missed, open, err := p.begin()
	if err != nil || !open {
		return err
	}
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	for _, w := range missed {
		w.ready(w)
		w.rearm()
	}
	err = p.serve()
	if err == nil {
		p.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	if err != nil {
		// epoll_wait(2) fails only if the descriptor is no longer an epoll instance. Its
		// number may belong to another file, so it is not closed.
		p.epoll = -1
	}
	p.free()
	return err
}

// begin gives the epoll instance to Run, and creates it again after a failure. It
// returns the watches that were not served since, and whether the Poller is open.
func (p *Poller) begin() (missed []*Watch, open bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, nil
	}
	if p.epoll < 0 {
		if err := p.open(); err != nil {
			return nil, false, err
		}
		missed = slices.Collect(maps.Values(p.watches))
	}
	p.running = true
	return missed, true, nil
}

// serve waits for events until Close is called.
func (p *Poller) serve() error {
	var events [16]unix.EpollEvent
	for {
		n, err := retry(func() (int, error) { return unix.EpollWait(p.epoll, events[:], -1) })
		if err != nil {
			return fmt.Errorf("wait for events of cgroups: %w", err)
		}
		for i := range events[:n] {
			w := p.watch(events[i].Fd)
			switch {
			case w != nil:
				w.ready(w)
				w.rearm()
			case events[i].Fd == 0:
				return nil
			}
		}
	}
}

// Close ends Run and all watches. It does not wait, and may be called again.
func (p *Poller) Close() {
	p.mu.Lock()
	watches := p.watches
	p.watches = nil
	first := !p.closed
	p.closed = true
	switch {
	case !first:
	case p.running:
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 1})
	default:
		p.free()
	}
	p.mu.Unlock()
	for _, w := range watches {
		w.close()
	}
}

// free closes the Poller's own files, with the lock held.
func (p *Poller) free() {
	for _, fd := range []int{p.epoll, p.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	p.epoll, p.wake = -1, -1
}

func (p *Poller) watch(id int32) *Watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches[id]
}

// add watches an open file. The Watch owns the file from then on; after an error it is
// closed. It fails with os.ErrClosed after Close, and between a failure of Run and the next
// Run. With EPOLLONESHOT the next event is delivered after pause: the kernel notifies
// of a cgroup at its limit a hundred times a second (CGROUP_FILE_NOTIFY_MIN_INTV in
// kernel/cgroup/cgroup.c).
func (p *Poller) add(fd int, events uint32, pause time.Duration, ready func(w *Watch)) (*Watch, error) {
	w := &Watch{poller: p, events: events, pause: pause, ready: ready, fd: fd}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		unix.Close(fd)
		return nil, os.ErrClosed
	}
	for { // skip the IDs of old watches
		if p.last++; p.last > 0 && p.watches[p.last] == nil {
			break
		}
		p.last = max(p.last, 0)
	}
	w.id = p.last
	p.watches[w.id] = w
	if err := p.control(unix.EPOLL_CTL_ADD, w); err != nil {
		delete(p.watches, w.id)
		unix.Close(fd)
		return nil, err
	}
	return w, nil
}

// control changes the epoll instance, with the lock held.
func (p *Poller) control(op int, w *Watch) error {
	if p.epoll < 0 {
		return os.ErrClosed
	}
	return unix.EpollCtl(p.epoll, op, w.fd, &unix.EpollEvent{Events: w.events, Fd: w.id})
}

// rearm enables the next event of EPOLLONESHOT, at once or after the pause. An event in
// the meantime is delivered then.
func (w *Watch) rearm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fd < 0 || w.events&unix.EPOLLONESHOT == 0:
	case w.pause <= 0:
		w.arm()
	case w.timer == nil:
		w.timer = time.AfterFunc(w.pause, w.resume)
	default:
		w.timer.Reset(w.pause)
	}
}

func (w *Watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm()
}

// arm enables one more event, with the lock held.
func (w *Watch) arm() {
	if w.fd < 0 {
		return
	}
	w.poller.mu.Lock()
	defer w.poller.mu.Unlock()
	_ = w.poller.control(unix.EPOLL_CTL_MOD, w)
}

// read reads the watched file from its start, by which the kernel takes the event for
// handled. It returns ErrNotFound for a cgroup that was removed.
func (w *Watch) read(buf []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return 0, os.ErrClosed
	}
	n, err := retry(func() (int, error) { return unix.Pread(w.fd, buf, 0) })
	if errors.Is(err, unix.ENODEV) {
		return 0, gone{}
	}
	return n, err
}

// Close ends the watch. Its callback may still be running, and is not called again. Close
// does not block and may be called again.
func (w *Watch) Close() {
	w.poller.mu.Lock()
	delete(w.poller.watches, w.id)
	w.poller.mu.Unlock()
	w.close()
}

// close closes the file, which removes it from the epoll instance.
func (w *Watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	unix.Close(w.fd)
	w.fd = -1
}

// openIn opens a file of a cgroup.
func (p *Poller) openIn(path, name string, flags int) (int, error) {
	rel, err := relative(path)
	if err != nil {
		return -1, err
	}
	file := p.root + "/" + rel + "/" + name
	fd, err := retry(func() (int, error) { return unix.Open(file, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, fmt.Errorf("open %s: %w", file, whyMissing(file))
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", file, err)
	}
	return fd, nil
}
