package cgroups

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"
)

var (
	// ErrNoSystemd says that systemd does not run this system.
	ErrNoSystemd = errors.New("systemd is not process 1")
	// ErrUnanswered says that systemd was not reached, did not answer in time,
	// or broke off. What was asked of it may be done all the same; asking
	// again does no harm.
	ErrUnanswered = errors.New("systemd does not answer")
	// errClosed says that the connection was given up by its user.
	errClosed = errors.New("the connection to systemd is closed")
)

// Where systemd is found: that it runs the system (sd_booted(3)), the system
// bus (D-Bus specification, well-known message bus instances), and its own
// socket, which needs no bus. The bus comes first, as with a kubelet: it
// passes on only the signals that were asked for.
const (
	// BusSocket is the system bus's, below the root of the file system.
	BusSocket     = "run/dbus/system_bus_socket"
	bootedFolder  = "run/systemd/system"
	privateSocket = "run/systemd/private"
)

const (
	// answerTime is how long systemd or a bus may take for one answer. It
	// answers nobody while it reloads its units, which takes a slow board
	// seconds.
	answerTime = 5 * time.Second
	// jobTime is how long a unit may take to start or stop. Slices take
	// milliseconds; others that wait in systemd's queue may be before them.
	jobTime = 10 * time.Second
	// linger is how long a connection is kept that nobody uses: systemd's own
	// socket has each signal of all units, which should not wake an idle
	// process for ever.
	linger = 10 * time.Second
)

// systemd is the way to systemd's manager: one connection, made when it is
// needed, anew after it broke, and closed when it is not used for a while or
// by close. It is safe for concurrent use.
type systemd struct {
	root string // of the file system
	// The times above, shorter in tests.
	answerTime, jobTime, linger time.Duration

	connecting chan struct{} // one slot: somebody connects
	closed     chan struct{}

	mu    sync.Mutex
	raw   net.Conn // while both sides introduce themselves
	link  *link    // nil without a connection
	users int      // of link
	idle  *time.Timer
}

func newSystemd(root string) *systemd {
	return &systemd{
		root: root, answerTime: answerTime, jobTime: jobTime, linger: linger,
		connecting: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// use calls do with a connection. What was left of an earlier use may have
// broken since, with systemd or the bus restarted: then do is called once
// more, with a new one.
func (s *systemd) use(do func(*link) error) error {
	for again := true; ; again = false {
		l, fresh, err := s.take()
		if err != nil {
			return err
		}
		err = do(l)
		s.give(l)
		if fresh || !again || !errors.Is(err, errBroken) {
			return err
		}
	}
}

// take is the connection, which is to be given back. fresh says that it was
// made just now.
func (s *systemd) take() (l *link, fresh bool, err error) {
	timer := time.NewTimer(2 * s.answerTime) // who connects takes no longer
	defer timer.Stop()
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-timer.C:
		return nil, false, fmt.Errorf("connect to systemd: %w", ErrUnanswered)
	case <-s.closed:
		return nil, false, errClosed
	}
	if l := s.current(); l != nil {
		return l, false, nil
	}
	if l, err = s.connect(); err != nil {
		return nil, false, err
	}
	if !s.keep(l) {
		l.close()
		return nil, false, errClosed
	}
	return l, true, nil
}

// keep has a new connection used by others as well. It refuses once all is
// closed.
func (s *systemd) keep(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
		s.link, s.users = l, 1
		return true
	}
}

// current takes the connection that there is, if it works.
func (s *systemd) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.broken() {
		s.link = nil
		return nil
	}
	s.users++
	return s.link
}

// give takes back what take has given.
func (s *systemd) give(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l { // another one has taken its place
		return
	}
	if s.users--; s.users > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(s.linger, s.drop)
	} else {
		s.idle.Reset(s.linger)
	}
}

// drop closes a connection that nobody uses.
func (s *systemd) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.users == 0 {
		s.link.close()
		s.link = nil
	}
}

// close ends the connection and all that waits for it, for good.
func (s *systemd) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return
	default:
	}
	close(s.closed)
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.raw != nil {
		_ = s.raw.Close()
	}
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}

// dials notes what close has to end beside the link, nil for nothing. It
// refuses once all is closed.
func (s *systemd) dials(raw net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = raw
	select {
	case <-s.closed:
		return false
	default:
		return true
	}
}

// connect finds a way on which systemd answers.
func (s *systemd) connect() (*link, error) {
	if !SystemdRuns(s.root) {
		return nil, fmt.Errorf("%w: there is no %s; have the container runtime make cgroups by itself (SystemdCgroup = false in containerd's configuration) and restart it",
			ErrNoSystemd, filepath.Join(s.root, bootedFolder))
	}
	bus, errBus := s.dial(filepath.Join(s.root, BusSocket), true)
	if errBus == nil {
		return bus, nil
	}
	private, errPrivate := s.dial(filepath.Join(s.root, privateSocket), false)
	if errPrivate == nil {
		return private, nil
	}
	return nil, fmt.Errorf("%w, neither on the system bus nor on its own socket: %w; see that dbus.service runs and that `systemctl list-jobs` answers", ErrUnanswered, errors.Join(errBus, errPrivate))
}
