package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// Config configures a keeper.
type Config struct {
	// Dir is the directory of the keeper's files. It is created with mode 0700.
	Dir string
	// Build identifies the binary, for Hello.
	Build string
	// Env is the environment of the OCI runtime program.
	Env []string
	Log *slog.Logger
}

// drainTimeout limits the wait for the rest of the output after the exit of a container. A
// process outside of the container may hold its standard output.
const drainTimeout = time.Second

// ErrRunning means that another keeper has the directory.
var ErrRunning = errors.New("another keeper runs")

// Keeper holds the containers. One process has one.
type Keeper struct {
	config  Config
	outputs *outputs
	reaper  *reaper
	lock    int // descriptor of the locked file

	consoles atomic.Uint32 // that were opened

	// work is held for reading while a container starts or ends, and for writing while
	// the process is replaced.
	work sync.RWMutex

	mu         sync.Mutex
	containers map[string]*container
	watchers   map[wait.Wakeup]struct{}
	listener   *net.UnixListener

	// release returns free memory to the kernel when the keeper has been idle.
	release *time.Timer
}

// releaseAfter is how long the keeper must be idle before it collects its garbage: a few
// hundred kB, which would otherwise stay for as long as no container starts.
const releaseAfter = 3 * time.Second

func (k *Keeper) containersDir() string { return filepath.Join(k.config.Dir, "containers") }

// SocketPath returns the path of the socket below the directory of a keeper.
func SocketPath(dir string) string { return filepath.Join(dir, "keeper.sock") }

// Open makes the process the keeper of the directory, with the containers of the one before.
// It makes the process the parent of orphaned processes below it.
func Open(config Config) (*Keeper, error) {
	if err := os.MkdirAll(filepath.Join(config.Dir, "containers"), 0o700); err != nil {
		return nil, fmt.Errorf("open keeper: %w", err)
	}
	k := &Keeper{config: config, reaper: newReaper(), lock: -1, containers: map[string]*container{}, watchers: map[wait.Wakeup]struct{}{}}
	if err := k.open(); err != nil {
		return nil, fmt.Errorf("open keeper in %q: %w", config.Dir, err)
	}
	return k, nil
}

func (k *Keeper) open() error {
	former, err := takeHandover()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if k.outputs, err = newOutputs(); err != nil {
		return err
	}
	if former != nil {
		k.lock = former.Lock
	} else if k.lock, err = lockFile(filepath.Join(k.config.Dir, "lock")); err != nil {
		return err
	}
	if k.listener, err = k.listen(former); err != nil {
		return err
	}
	if former != nil {
		k.resumeAll(former)
		return nil
	}
	if err := k.removeConsoles(); err != nil {
		return err
	}
	return k.adoptAll()
}

// lockFile locks a file, and returns its descriptor.
func lockFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return -1, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return -1, ErrRunning
		}
		return -1, fmt.Errorf("lock: %w", err)
	}
	return fd, nil
}

// listen returns the listener of the socket.
func (k *Keeper) listen(former *handover) (*net.UnixListener, error) {
	if former != nil {
		f := os.NewFile(uintptr(former.Listener), "keeper.sock")
		defer func() { _ = f.Close() }() // the listener has its own
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("take over socket: %w", err)
		}
		return l.(*net.UnixListener), nil
	}
	path := SocketPath(k.config.Dir)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove socket of former keeper: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// Run serves until an error that it cannot survive.
func (k *Keeper) Run() error {
	k.release = time.AfterFunc(releaseAfter, debug.FreeOSMemory)
	go k.reaper.run()
	failed := make(chan error, 2)
	go func() { failed <- k.outputs.run() }()
	go func() { failed <- k.serve() }()
	return <-failed
}

// insert adds a container that is about to start.
func (k *Keeper) insert(c *container) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.containers[c.state.ID] != nil:
		return fmt.Errorf("%w: %s", ErrExists, c.state.ID)
	case len(k.containers) >= maxContainers:
		return fmt.Errorf("%w: it has %d containers", ErrBusy, maxContainers)
	}
	k.containers[c.state.ID] = c
	return nil
}

// remove closes and forgets a container. Another one of its ID has to wait for that: they have
// the same directory.
func (k *Keeper) remove(c *container) error {
	err := c.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.containers, c.state.ID)
	return err
}

func (k *Keeper) container(id string) (*container, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
}

// all returns the containers whose IDs come after one, sorted by ID.
func (k *Keeper) all(after string) []*container {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []*container
	for id, c := range k.containers {
		if id > after {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *container) int { return strings.Compare(a.state.ID, b.state.ID) })
	return out
}

// ended handles the end of a container's first process.
func (k *Keeper) ended(c *container, code int32, known bool) {
	now := time.Now()
	k.work.RLock()
	defer k.work.RUnlock()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
	}
	c.closeStdin()
	if err := c.set(func(s *Container) {
		s.Phase, s.ExitCode, s.CodeKnown, s.FinishedAt = PhaseExited, code, known, now.UnixNano()
	}); err != nil {
		k.config.Log.Warn("cannot write record of container", "error", err)
	}
	k.notify()
}

// notify wakes the watchers.
func (k *Keeper) notify() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := range k.watchers {
		w.Set()
	}
}

// exits returns the containers that have exited, the first one first.
func (k *Keeper) exits() []Container {
	var out []Container
	for _, c := range k.all("") {
		if state := c.snapshot(); state.Phase == PhaseExited {
			out = append(out, state)
		}
	}
	slices.SortFunc(out, func(a, b Container) int { return cmp.Compare(a.FinishedAt, b.FinishedAt) })
	return out
}

// ack forgets a container that has exited or whose start was interrupted.
func (k *Keeper) ack(id string) error {
	c, err := k.container(id)
	if err != nil {
		return err
	}
	if phase := c.snapshot().Phase; phase != PhaseExited && phase != PhaseInterrupted {
		return fmt.Errorf("%w: container %s is %s", ErrInvalid, id, phase)
	}
	return k.remove(c)
}
