package cgroups

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPressure says that the kernel does not tell of pressure: it was built
// without PSI, or started with psi=0, or the group's was switched off
// (cgroup.pressure).
var ErrPressure = errors.New("the kernel does not tell of pressure (CONFIG_PSI=y and psi=1 on its command line)")

// Resource is what tasks may have to wait for.
type Resource string

// The resources whose pressure the kernel tells.
const (
	ResourceCPU    Resource = "cpu"
	ResourceMemory Resource = "memory"
	ResourceIO     Resource = "io"
)

// Trigger is how much pressure is told: when some tasks, or all at once (Full),
// waited for Stall within any Window. A Window has 500 ms to 10 s
// (Documentation/accounting/psi.rst).
type Trigger struct {
	Full          bool
	Stall, Window time.Duration
}

func (t Trigger) String() string {
	kind := "some"
	if t.Full {
		kind = "full"
	}
	return fmt.Sprintf("%s %d %d", kind, t.Stall.Microseconds(), t.Window.Microseconds())
}

// WatchPressure calls told when the pressure on the group, the root being the
// whole system, has come to the trigger's: once in a window at most, and at
// once when it begins. A kernel that does not tell gives ErrPressure, a group
// that does not exist ErrNotFound. While there is no pressure it costs
// nothing here; the kernel looks at its counters while tasks wait.
func (p *Poller) WatchPressure(path string, of Resource, t Trigger, told func()) (*Watch, error) {
	name := string(of) + ".pressure"
	fd, err := p.openIn(path, name, unix.O_RDWR|unix.O_NONBLOCK)
	if errors.Is(err, ErrController) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, ErrPressure)
	}
	if err != nil {
		return nil, fmt.Errorf("watch pressure: %w", err)
	}
	// The kernel takes the last byte for the end, whatever it is.
	_, err = retry(func() (int, error) { return unix.Write(fd, append([]byte(t.String()), 0)) })
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = ErrPressure
		}
		return nil, fmt.Errorf("watch %s of cgroup %s for %q: %w", name, path, t, err)
	}
	// To arm it anew for each event would take events away.
	w, err := p.add(fd, unix.EPOLLPRI|unix.EPOLLET, 0, func(*Watch) { told() })
	if err != nil {
		return nil, fmt.Errorf("watch %s of cgroup %s: %w", name, path, err)
	}
	return w, nil
}
