package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// Names on the bus: org.freedesktop.login1(5), org.freedesktop.systemd1(5).
const (
	loginService   = "org.freedesktop.login1"
	loginObject    = "/org/freedesktop/login1"
	loginManager   = "org.freedesktop.login1.Manager"
	prepareSignal  = "PrepareForShutdown"
	systemdService = "org.freedesktop.systemd1"
	systemdObject  = "/org/freedesktop/systemd1"
	systemdManager = "org.freedesktop.systemd1.Manager"
	loginUnit      = "systemd-logind.service"
)

// callTimeout bounds one call, as D-Bus libraries do. It is longer than the timeout
// of calls to systemd itself (cgroups), because the bus may have to start logind
// first.
const callTimeout = 25 * time.Second

// logind implements login over D-Bus. The login1 package of go-systemd does not fit: it
// connects to the address of the system bus only, and to no socket below a root. Its New,
// Inhibit and Subscribe have no timeout, and New cannot be interrupted. It does not read
// InhibitDelayMaxUSec and PreparingForShutdown, ignores that a subscription fails, and
// has no notification that the connection has ended. Its Inhibit alone would need a
// second connection. The dbus package of go-systemd would subscribe to the ends of all
// jobs of systemd, which would wake an idle agent.
type logind struct {
	conn    *dbus.Conn
	trigger chan struct{}
	cancel  context.CancelFunc
}

// dialLogind connects to the bus at a socket and subscribes to logind's signals.
// The connection ends with ctx.
func dialLogind(ctx context.Context, socket string) (login, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &logind{trigger: make(chan struct{}, 1), cancel: cancel}
	if err := l.connect(ctx, socket); err != nil {
		cancel()
		return nil, fmt.Errorf("connect to the system bus at %s: %w", socket, err)
	}
	bounded, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	err := l.conn.AddMatchSignalContext(bounded, dbus.WithMatchSender(loginService), dbus.WithMatchInterface(loginManager),
		dbus.WithMatchMember(prepareSignal), dbus.WithMatchObjectPath(loginObject))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to logind's signals: %w", err), l.Close())
	}
	return l, nil
}

// connect opens the connection, and gives up after callTimeout if the bus does not
// answer.
func (l *logind) connect(ctx context.Context, socket string) (err error) {
	hung := time.AfterFunc(callTimeout, l.cancel)
	address := "unix:path=" + dbus.EscapeBusAddressValue(socket)
	l.conn, err = dbus.Connect(address, dbus.WithContext(ctx), dbus.WithSignalHandler(l))
	if !hung.Stop() && err == nil {
		err = errors.Join(context.DeadlineExceeded, l.conn.Close())
	}
	return err
}

// DeliverSignal implements dbus.SignalHandler. Any process may send such a signal,
// so it only triggers a read of logind's property.
func (l *logind) DeliverSignal(iface, member string, _ *dbus.Signal) {
	if iface == loginManager && member == prepareSignal {
		wait.Notify(l.trigger)
	}
}

// Signals implements login.
func (l *logind) Signals() <-chan struct{} { return l.trigger }

// Lost implements login.
func (l *logind) Lost() <-chan struct{} { return l.conn.Context().Done() }

// Close implements login.
func (l *logind) Close() error {
	l.cancel()
	return l.conn.Close()
}

// Delay implements login.
func (l *logind) Delay(ctx context.Context) (time.Duration, error) {
	var micros uint64
	if err := l.property(ctx, "InhibitDelayMaxUSec", &micros); err != nil {
		return 0, err
	}
	return delayOf(micros), nil
}

// delayOf converts logind's microseconds.
func delayOf(micros uint64) time.Duration {
	return time.Duration(min(micros, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond
}

// Preparing implements login.
func (l *logind) Preparing(ctx context.Context) (preparing bool, err error) {
	err = l.property(ctx, "PreparingForShutdown", &preparing)
	return preparing, err
}

// property reads one of logind's properties into to, a pointer to a value of its
// type.
func (l *logind) property(ctx context.Context, name string, to any) error {
	call := l.call(ctx, loginService, loginObject, "org.freedesktop.DBus.Properties.Get", loginManager, name)
	if err := readProperty(call, to); err != nil {
		return fmt.Errorf("read logind's %s: %w", name, err)
	}
	return nil
}

// call calls a method and blocks until its reply, at most for callTimeout.
func (l *logind) call(ctx context.Context, service string, object dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return l.conn.Object(service, object).CallWithContext(ctx, method, 0, args...)
}

// readProperty reads the reply to a call for a property.
func readProperty(call *dbus.Call, to any) error {
	var value dbus.Variant
	if err := call.Store(&value); err != nil {
		return err
	}
	return value.Store(to)
}

// Inhibit implements login.
func (l *logind) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	call := l.call(ctx, loginService, loginObject, loginManager+".Inhibit", "shutdown", "kubelet", "Pods need time to terminate", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("take inhibitor lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor lock"), nil
}

// Reload implements login: logind reads its configuration on SIGHUP.
func (l *logind) Reload(ctx context.Context) error {
	call := l.call(ctx, systemdService, systemdObject, systemdManager+".KillUnit", loginUnit, "all", int32(unix.SIGHUP))
	if err := call.Err; err != nil {
		return fmt.Errorf("reload configuration of logind: %w", err)
	}
	return nil
}
