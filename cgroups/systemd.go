package cgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	units "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

var (
	// ErrNoSystemd means that systemd does not run this system.
	ErrNoSystemd = errors.New("systemd is not process 1")
	// ErrUnanswered means that systemd could not be reached, did not answer in time,
	// or closed the connection. It may have done what was requested. A retry does no
	// harm.
	ErrUnanswered = errors.New("systemd does not answer")
	// errBroken is the ErrUnanswered of a connection that was closed by the peer.
	errBroken error = brokenError{}
	// errClosed means that the caller has closed the connection.
	errClosed = errors.New("the connection to systemd is closed")
)

// brokenError is an ErrUnanswered with a text of its own.
type brokenError struct{}

func (brokenError) Error() string { return "the connection to systemd broke" }

func (brokenError) Is(target error) bool { return target == ErrUnanswered }

// The directory that exists if systemd is the init system (sd_booted(3)), the system bus
// (D-Bus specification, well-known message bus instances), and systemd's own socket, which
// needs no bus. The bus is tried first, as with a kubelet: it delivers only the signals
// that were subscribed to.
const (
	// BusSocket is the system bus, below the root of the file system.
	BusSocket       = "run/dbus/system_bus_socket"
	bootedDirectory = "run/systemd/system"
	privateSocket   = "run/systemd/private"
)

// Names on the bus (org.freedesktop.systemd1(5)).
const (
	systemdService   = "org.freedesktop.systemd1"
	systemdObject    = "/org/freedesktop/systemd1"
	managerInterface = "org.freedesktop.systemd1.Manager"
	noSuchUnit       = "org.freedesktop.systemd1.NoSuchUnit"
	unitExists       = "org.freedesktop.systemd1.UnitExists"
)

const (
	// answerTime is the timeout of one answer of systemd or a bus. systemd does not
	// answer while it reloads its units, which takes a slow board seconds.
	answerTime = 5 * time.Second
	// jobTime is the timeout of the start or stop of a unit. A slice takes
	// milliseconds, but other jobs may be before it in systemd's queue.
	jobTime = 10 * time.Second
	// idleTime is how long an unused connection stays open. systemd's own socket
	// delivers each signal of all units, which should not wake an idle process.
	idleTime = 10 * time.Second
)

// SystemdRuns reports whether systemd is process 1 of the system whose file system is at
// root, "/" if it is "" (sd_booted(3)).
func SystemdRuns(root string) bool {
	return isDir(filepath.Join(cmp.Or(root, "/"), bootedDirectory))
}

// CheckSystemd returns ErrNoSystemd or ErrUnanswered where Slices cannot work. It blocks
// for some seconds at most.
func CheckSystemd(root string) error {
	s := newSystemd(cmp.Or(root, "/"))
	defer s.close()
	return s.use(func(*connection) error { return nil })
}

// CheckSystemBus returns an error if systemd cannot be reached over the system bus. crun
// needs that, Slices does not. It blocks for some seconds at most.
func CheckSystemBus(root string) error {
	s := newSystemd(cmp.Or(root, "/"))
	defer s.close()
	c, err := s.dial(filepath.Join(s.root, BusSocket), true)
	if err != nil {
		return fmt.Errorf("reach systemd over the system bus: %w", err)
	}
	c.close()
	return nil
}

// systemd provides one connection to systemd's manager. It connects when a connection is
// needed, again after it broke, and closes it when it is unused for a while. The library
// has connections that its user opens and closes. systemd is safe for concurrent use.
type systemd struct {
	root string // of the file system
	// The timeouts above, shorter in tests.
	answerTime, jobTime, idleTime time.Duration

	lifetime   func() context.Context // its context ends with close
	end        context.CancelCauseFunc
	connecting chan struct{} // one slot, held while connecting

	mu    sync.Mutex
	conn  *connection // nil without a connection
	users int         // of conn
	idle  *time.Timer
}

func newSystemd(root string) *systemd {
	s := &systemd{root: root, answerTime: answerTime, jobTime: jobTime, idleTime: idleTime, connecting: make(chan struct{}, 1)}
	ctx, end := context.WithCancelCause(context.Background())
	s.lifetime, s.end = func() context.Context { return ctx }, end
	return s
}

// limit returns a context that ends after d with ErrUnanswered, and with close.
func (s *systemd) limit(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(s.lifetime(), d, ErrUnanswered)
}

// use calls do with a connection. A connection of an earlier use may have broken since,
// because systemd or the bus was restarted: then use calls do once more, with a new one.
func (s *systemd) use(do func(*connection) error) error {
	for again := true; ; again = false {
		c, fresh, err := s.acquire()
		if err != nil {
			return err
		}
		err = do(c)
		s.release(c)
		if fresh || !again || !errors.Is(err, errBroken) {
			return err
		}
	}
}

// acquire returns the connection, and whether it is new. The caller must release it.
func (s *systemd) acquire() (c *connection, fresh bool, err error) {
	ctx, cancel := s.limit(2 * s.answerTime) // another caller connects within that time
	defer cancel()
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, false, fmt.Errorf("connect to systemd: %w", context.Cause(ctx))
	}
	if c := s.current(); c != nil {
		return c, false, nil
	}
	if c, err = s.connect(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.users = c, 1
	return c, true, nil
}

// current returns the open connection with one more user, or nil.
func (s *systemd) current() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || !s.conn.bus.Connected() {
		s.conn = nil
		return nil
	}
	s.users++
	return s.conn
}

// release ends a use of acquire's connection.
func (s *systemd) release(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c { // replaced by another
		return
	}
	if s.users--; s.users > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(s.idleTime, s.closeUnused)
	} else {
		s.idle.Reset(s.idleTime)
	}
}

func (s *systemd) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.users == 0 {
		s.conn.close()
		s.conn = nil
	}
}

// close closes the connection for good, and ends all calls that wait for it.
func (s *systemd) close() {
	s.end(errClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
}

// connect connects to the first socket on which systemd answers.
func (s *systemd) connect() (*connection, error) {
	if !SystemdRuns(s.root) {
		return nil, fmt.Errorf("%w: there is no %s; configure the container runtime to create cgroups itself (SystemdCgroup = false in containerd's configuration) and restart it",
			ErrNoSystemd, filepath.Join(s.root, bootedDirectory))
	}
	bus, errBus := s.dial(filepath.Join(s.root, BusSocket), true)
	if errBus == nil {
		return bus, nil
	}
	private, errPrivate := s.dial(filepath.Join(s.root, privateSocket), false)
	if errPrivate == nil {
		return private, nil
	}
	if err := context.Cause(s.lifetime()); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w, neither on the system bus nor on its own socket: %w; check that dbus.service runs and that `systemctl list-jobs` answers", ErrUnanswered, errors.Join(errBus, errPrivate))
}

// connection is one connection to systemd's manager.
type connection struct {
	*units.Conn
	bus     *dbus.Conn // below Conn
	version int        // of systemd; 0 is unknown
	of      *systemd
}

// boundedWriter writes with a timeout. The D-Bus library writes without one, so a peer
// that does not read would block it.
type boundedWriter struct {
	net.Conn
	timeout time.Duration
}

func (w boundedWriter) Write(data []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.Conn.Write(data)
}

// dial connects to systemd's own socket, or to that of a bus with systemd on it. It
// returns once systemd has answered.
func (s *systemd) dial(socket string, bus bool) (*connection, error) {
	ctx, cancel := s.limit(s.answerTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c, err := s.open(raw, bus)
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", socket, err)
	}
	return c, nil
}

// open makes a connection of raw, which it closes after an error. The read deadline of
// raw is the timeout of introduce, since its calls have none in either library.
func (s *systemd) open(raw net.Conn, bus bool) (*connection, error) {
	c := &connection{of: s}
	err := raw.SetReadDeadline(time.Now().Add(s.answerTime))
	if err == nil {
		c.bus, err = dbus.NewConn(boundedWriter{raw, s.answerTime}, dbus.WithContext(s.lifetime()))
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	err = c.introduce(bus)
	if err == nil {
		err = raw.SetReadDeadline(time.Time{})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// introduce authenticates to systemd or to the bus, reads systemd's version, and gives
// the connection to the library.
//
// The library would open two connections, one of them for signals. Both of its functions
// share this one here, since systemd's own socket sends the signals of all units to
// each. That is safe: the D-Bus library reads on while a signal waits for the library's
// lock, so that the answer to a call under that lock arrives.
func (c *connection) introduce(bus bool) error {
	if err := c.bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return err
	}
	if bus {
		if err := c.bus.Hello(); err != nil {
			return err
		}
	}
	body, err := c.readVersion()
	if err != nil {
		return err
	}
	if c.version, err = versionOf(body); err != nil {
		return err
	}
	if c.Conn, err = units.NewConnection(func() (*dbus.Conn, error) { return c.bus, nil }); err != nil {
		return err
	}
	if !c.bus.Connected() { // its subscription to signals has failed, which it ignores
		return errBroken
	}
	return nil
}

// readVersion reads the property of systemd's version, and repeats the call until there
// is an answer: systemd 252 does not handle a first call that it reads together with the
// end of the authentication before it reads more. So this is the first call, and the
// library's GetManagerProperty does not fit. It ends with the connection.
func (c *connection) readVersion() ([]any, error) {
	manager := c.bus.Object(systemdService, systemdObject)
	answers := make(chan *dbus.Call, 32) // more than the calls of a day
	for again := 20 * time.Millisecond; ; again *= 2 {
		manager.Go("org.freedesktop.DBus.Properties.Get", 0, answers, managerInterface, "Version")
		select {
		case call := <-answers:
			return call.Body, c.classify("read systemd's version", call.Err)
		case <-time.After(again):
		}
	}
}

// versionOf parses the answer to readVersion.
func versionOf(body []any) (int, error) {
	var version dbus.Variant
	if err := dbus.Store(body, &version); err != nil {
		return 0, fmt.Errorf("read systemd's version: %w", err)
	}
	text, _ := version.Value().(string)
	return parseVersion(text), nil
}

// parseVersion parses a version as distributions write it: 252.38-1~deb12u1, or v245. It
// returns 0 if it is not such a version.
func parseVersion(text string) int {
	text = strings.TrimPrefix(text, "v")
	n, err := strconv.Atoi(text[:len(text)-len(strings.TrimLeft(text, "0123456789"))])
	if err != nil {
		return 0
	}
	return n
}

// call makes one call of the library, with a timeout. An error that systemd returns is a
// dbus.Error.
func (c *connection) call(method string, do func(ctx context.Context) error) error {
	ctx, cancel := c.of.limit(c.of.answerTime)
	defer cancel()
	return c.classify(method, do(ctx))
}

// classify returns the error of a call, and closes the connection unless systemd has
// answered: nothing would receive a late answer, and the next write might be the rest of
// a message.
func (c *connection) classify(method string, err error) error {
	var answer dbus.Error
	switch {
	case err == nil:
		return nil
	case c.of.lifetime().Err() != nil:
		return errClosed
	case errors.Is(err, context.DeadlineExceeded):
		c.close()
		return fmt.Errorf("%s: %w within %v; check that `systemctl list-jobs` answers", method, ErrUnanswered, c.of.answerTime)
	case !errors.As(err, &answer) || lost[answer.Name]:
		c.close()
		return fmt.Errorf("%s: %w: %w", method, errBroken, err)
	default:
		return err
	}
}

// lost are the errors of a bus without systemd, or that systemd has left (D-Bus
// specification, sd-bus-errors(3)).
var lost = map[string]bool{
	"org.freedesktop.DBus.Error.Disconnected":   true,
	"org.freedesktop.DBus.Error.NameHasNoOwner": true,
	"org.freedesktop.DBus.Error.NoReply":        true,
	"org.freedesktop.DBus.Error.ServiceUnknown": true,
}

// isError reports whether err is systemd's of that name.
func isError(err error, name string) bool {
	var answer dbus.Error
	return errors.As(err, &answer) && answer.Name == name
}

// job starts a job of a unit with a method of the library, and waits for its end. Any
// result but done is an error. On a bus any process may send the signal of that end, so
// the caller must check the files.
func (c *connection) job(method, unit string, start func(ctx context.Context, ended chan<- string) (int, error)) error {
	ended := make(chan string, 1) // the library blocks on it
	err := c.call(method, func(ctx context.Context) error {
		_, err := start(ctx, ended)
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := c.of.limit(c.of.jobTime)
	defer cancel()
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("job of %s ended with result %q; see `systemctl status %s`", method, result, unit)
		}
		return nil
	case <-ctx.Done():
		if c.of.lifetime().Err() != nil {
			return errClosed
		}
		return fmt.Errorf("%w: job of %s did not end within %v; see `systemctl list-jobs`", ErrUnanswered, method, c.of.jobTime)
	case <-c.bus.Context().Done():
		if c.of.lifetime().Err() != nil {
			return errClosed
		}
		return errBroken
	}
}

func (c *connection) close() { _ = c.bus.Close() }
