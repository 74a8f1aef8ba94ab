package keeper

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// maxUnclaimed bounds the exits that are kept while containers start.
const maxUnclaimed = 1024

// reaper reaps the children of the keeper: the OCI runtime programs, the first processes of
// containers, and whatever else loses its parent below them.
type reaper struct {
	// mu is held while a child is reaped or started, so that no exit is handled before
	// the child is known.
	mu      sync.Mutex
	waiting map[int]func(unix.WaitStatus) // by PID
	// While containers start, the PIDs of their first processes are not known yet: the
	// exits of other children are kept until then.
	starts    int
	unclaimed map[int]unix.WaitStatus
}

func newReaper() *reaper {
	return &reaper{waiting: map[int]func(unix.WaitStatus){}, unclaimed: map[int]unix.WaitStatus{}}
}

// run reaps children until the process ends.
func (r *reaper) run() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for {
		r.reap()
		<-signals
	}
}

func (r *reaper) reap() {
	for {
		r.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			r.mu.Unlock()
			continue
		}
		if err != nil || pid <= 0 {
			r.mu.Unlock()
			return
		}
		exited := r.waiting[pid]
		delete(r.waiting, pid)
		if exited == nil && r.starts > 0 && len(r.unclaimed) < maxUnclaimed {
			r.unclaimed[pid] = status
		}
		r.mu.Unlock()
		if exited != nil {
			exited(status)
		}
	}
}

// start starts a child. exited is called once with its status, from another goroutine.
func (r *reaper) start(fork func() (pid int, err error), exited func(unix.WaitStatus)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err == nil {
		r.waiting[pid] = exited
	}
	return pid, err
}

// begin makes the reaper keep exits until the end is called.
func (r *reaper) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.starts--; r.starts == 0 {
			clear(r.unclaimed)
		}
	}
}

// claim makes the reaper call exited with the status of a child that it did not start. If
// the child has exited, claim calls it.
func (r *reaper) claim(pid int, exited func(unix.WaitStatus)) {
	r.mu.Lock()
	status, done := r.unclaimed[pid]
	delete(r.unclaimed, pid)
	if !done {
		r.waiting[pid] = exited
	}
	r.mu.Unlock()
	if done {
		exited(status)
	}
}

// codeOf returns the exit code of a process as CRI counts it.
func codeOf(status unix.WaitStatus) int32 {
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}
