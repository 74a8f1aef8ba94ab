package cgroups

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPressure means that the kernel has no PSI: it was built without it, or started with
// psi=0, or PSI of the cgroup was disabled (cgroup.pressure).
var ErrPressure = errors.New("the kernel has no PSI (CONFIG_PSI=y and psi=1 on its command line)")

// Trigger is the threshold of a PSI event: some tasks waited for Stall within any Window.
// A Window is 500 ms to 10 s (Documentation/accounting/psi.rst).
type Trigger struct {
	Stall, Window time.Duration
}

func (t Trigger) String() string {
	return fmt.Sprintf("some %d %d", t.Stall.Microseconds(), t.Window.Microseconds())
}

// WatchMemoryPressure calls notify when the memory pressure on the cgroup reaches the
// threshold of the trigger, at most once in a window, and at once when it begins. The
// pressure on the root is that on the whole system. It returns ErrPressure without PSI,
// and ErrNotFound without the cgroup. Without pressure it costs nothing: the kernel
// checks its counters only while tasks wait. The library has no PSI triggers.
func (p *Poller) WatchMemoryPressure(path string, t Trigger, notify func()) (*Watch, error) {
	const name = "memory.pressure"
	fd, err := p.openIn(path, name, unix.O_RDWR|unix.O_NONBLOCK)
	if errors.Is(err, ErrController) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, ErrPressure)
	}
	if err != nil {
		return nil, fmt.Errorf("watch pressure: %w", err)
	}
	// The kernel cuts off the last byte, whatever it is.
	_, err = retry(func() (int, error) { return unix.Write(fd, append([]byte(t.String()), 0)) })
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = ErrPressure
		}
		return nil, fmt.Errorf("watch %s of cgroup %s for %q: %w", name, path, t, err)
	}
	// EPOLLONESHOT would lose events: arming it again takes an event.
	w, err := p.add(fd, unix.EPOLLPRI|unix.EPOLLET, 0, func(*Watch) { notify() })
	if err != nil {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, err)
	}
	return w, nil
}
