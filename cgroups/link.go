package cgroups

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names on the bus (org.freedesktop.systemd1(5)).
const (
	systemdService = "org.freedesktop.systemd1"
	systemdObject  = "/org/freedesktop/systemd1"
	managerMethods = "org.freedesktop.systemd1.Manager"
	jobRemoved     = "JobRemoved"
	noSuchUnit     = "org.freedesktop.systemd1.NoSuchUnit"
	unitExists     = "org.freedesktop.systemd1.UnitExists"
)

// errBroken is the ErrUnanswered of a connection that broke: what was asked
// may or may not be done.
var errBroken = fmt.Errorf("%w: the connection broke", ErrUnanswered)

// link is one connection to systemd's manager.
type link struct {
	conn    *dbus.Conn
	manager dbus.BusObject
	jobs    jobs
	version int // of systemd; 0 is not known
	of      *systemd
}

// patient is a connection on which nobody waits for a peer that reads nothing.
type patient struct {
	net.Conn
	timeout time.Duration
}

func (p patient) Write(data []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.Conn.Write(data)
}

// dial connects to systemd's own socket, or to that of a bus that it is on,
// and has it answer once.
func (s *systemd) dial(socket string, bus bool) (*link, error) {
	raw, err := net.DialTimeout("unix", socket, s.answerTime)
	if err != nil {
		return nil, err
	}
	if !s.dials(raw) {
		return nil, errors.Join(errClosed, raw.Close())
	}
	defer s.dials(nil)
	l := &link{of: s, jobs: jobs{waiting: make(map[*job]struct{})}}
	// While both sides introduce themselves only this ends the waiting.
	err = raw.SetReadDeadline(time.Now().Add(s.answerTime))
	if err == nil {
		l.conn, err = dbus.NewConn(patient{raw, s.answerTime}, dbus.WithSignalHandler(&l.jobs))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("at %s: %w", socket, err), raw.Close())
	}
	if err := l.introduce(bus); err != nil {
		l.close()
		return nil, fmt.Errorf("at %s: %w", socket, err)
	}
	if err := raw.SetReadDeadline(time.Time{}); err != nil {
		l.close()
		return nil, fmt.Errorf("at %s: %w", socket, err)
	}
	return l, nil
}

// introduce says who this is to systemd, or to the bus, and has systemd tell
// its version.
func (l *link) introduce(bus bool) error {
	if err := l.conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return err
	}
	if bus {
		if err := l.listen(); err != nil {
			return err
		}
	}
	l.manager = l.conn.Object(systemdService, systemdObject)
	body, err := l.askVersion()
	if err != nil {
		return err
	}
	l.version, err = readVersion(body)
	return err
}

// readVersion reads the answer to askVersion.
func readVersion(body []any) (int, error) {
	var version dbus.Variant
	if err := dbus.Store(body, &version); err != nil {
		return 0, fmt.Errorf("read systemd's version: %w", err)
	}
	return versionOf(version.Value()), nil
}

// askVersion asks systemd for its version, and again while it does not answer:
// where a first call comes so soon that systemd 252 reads it together with the
// end of the introduction, it looks at it only when more comes. It ends with
// the connection.
func (l *link) askVersion() ([]any, error) {
	answers := make(chan *dbus.Call, 32) // more than are asked in a day
	for again := 20 * time.Millisecond; ; again *= 2 {
		l.manager.Go("org.freedesktop.DBus.Properties.Get", 0, answers, managerMethods, "Version")
		select {
		case call := <-answers:
			return l.answer(call)
		case <-time.After(again):
		}
	}
}

// listen joins the bus, and has it pass on the ends of systemd's jobs.
func (l *link) listen() error {
	if err := l.conn.Hello(); err != nil {
		return err
	}
	rule := "type='signal',sender='" + systemdService + "',interface='" + managerMethods + "',member='" + jobRemoved + "'"
	_, err := l.wait(l.conn.BusObject().Go("org.freedesktop.DBus.AddMatch", 0, nil, rule))
	return err
}

// versionOf reads a version as distributions write it: 252.38-1~deb12u1, or
// v245. 0 is one that cannot be read.
func versionOf(value any) int {
	text, _ := value.(string)
	text = strings.TrimPrefix(text, "v")
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.Atoi(text[:end])
	if err != nil {
		return 0
	}
	return n
}

// call calls a method of the manager. An answer that is an error is a
// dbus.Error.
func (l *link) call(method string, args ...any) ([]any, error) {
	return l.wait(l.manager.Go(managerMethods+"."+method, 0, nil, args...))
}

// wait waits for an answer. Without one in time the connection is of no use:
// the answer could come to nobody.
func (l *link) wait(call *dbus.Call) ([]any, error) {
	timer := time.NewTimer(l.of.answerTime)
	defer timer.Stop()
	select {
	case <-call.Done:
	case <-timer.C:
		l.close()
		return nil, fmt.Errorf("%s: %w within %v; `systemctl list-jobs` tells whether it does now", call.Method, ErrUnanswered, l.of.answerTime)
	case <-l.of.closed:
		return nil, errClosed
	}
	return l.answer(call)
}

// answer is what a call that is done has brought.
func (l *link) answer(call *dbus.Call) ([]any, error) {
	var answer dbus.Error
	if call.Err != nil && (!errors.As(call.Err, &answer) || lost[answer.Name]) {
		l.close()
		return nil, fmt.Errorf("%s: %w: %w", call.Method, errBroken, call.Err)
	}
	return call.Body, call.Err
}

// lost are the errors by which a bus says that systemd is not on it, or no
// longer (D-Bus specification, sd-bus-errors(3)).
var lost = map[string]bool{
	"org.freedesktop.DBus.Error.Disconnected":   true,
	"org.freedesktop.DBus.Error.NameHasNoOwner": true,
	"org.freedesktop.DBus.Error.NoReply":        true,
	"org.freedesktop.DBus.Error.ServiceUnknown": true,
}

func (l *link) broken() bool { return !l.conn.Connected() }

func (l *link) close() { _ = l.conn.Close() }

// isError says whether err is systemd's of that name.
func isError(err error, name string) bool {
	var answer dbus.Error
	return errors.As(err, &answer) && answer.Name == name
}
