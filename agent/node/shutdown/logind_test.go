package shutdown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/cgroups"
)

// patience bounds waits in real time that end much sooner.
const patience = 20 * time.Second

// startBus runs a private bus daemon at root's system bus socket, and ends it
// with the returned function or the test.
func startBus(t *testing.T, root string) (stop func()) {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon (package dbus)")
	}
	socket := filepath.Join(root, cgroups.BusSocket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	file := filepath.Join(root, "bus.conf")
	text := fmt.Sprintf(`<busconfig><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true"/><allow receive_requested_reply="true"/></policy></busconfig>`, socket)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, daemon, "--nofork", "--print-address=1", "--config-file="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the bus said:\n%s", &complaints)
		}
	})
	t.Cleanup(stop)
	if _, err := out.Read(make([]byte, 1)); err != nil { // it listens
		t.Fatal(err)
	}
	return stop
}

// busLogind implements logind, and the systemd that reloads it, on a real bus.
type busLogind struct {
	t     *testing.T
	conn  *dbus.Conn
	root  string
	calls chan string
	locks chan *os.File // the ends of the locks that are handed out
	// handed are this side's copies of the locks, until the next question
	// shows that they have arrived.
	handed chan *os.File

	asked chan struct{} // one slot: a question came after a lock

	// Only exported methods and tests between calls touch these.
	preparing chan bool   // holds one value
	delay     chan uint64 // holds one value, in microseconds
}

// loginMethods are its exported D-Bus methods.
type loginMethods struct{ *busLogind }

func (l loginMethods) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.calls <- strings.Join([]string{what, who, mode}, " ")
	l.locks <- r
	l.handed <- w
	return dbus.UnixFD(w.Fd()), nil
}

type systemdMethods struct{ *busLogind }

func (s systemdMethods) KillUnit(unit, who string, signal int32) *dbus.Error {
	text, err := os.ReadFile(filepath.Join(s.root, logindFolder, logindFile))
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	var seconds uint64
	if _, err := fmt.Sscanf(string(text[strings.Index(string(text), "Inhibit"):]), "InhibitDelayMaxSec=%d", &seconds); err != nil {
		return dbus.MakeFailedError(err)
	}
	<-s.delay
	s.delay <- seconds * 1e6
	s.calls <- fmt.Sprintf("%s %s %d", unit, who, signal)
	return nil
}

type propertyMethods struct{ *busLogind }

func (p propertyMethods) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	for len(p.handed) > 0 {
		_ = (<-p.handed).Close()
		wait.Notify(p.asked)
	}
	switch iface + "." + name {
	case loginManager + ".InhibitDelayMaxUSec":
		v := <-p.delay
		p.delay <- v
		return dbus.MakeVariant(v), nil
	case loginManager + ".PreparingForShutdown":
		v := <-p.preparing
		p.preparing <- v
		return dbus.MakeVariant(v), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(errors.New("no such property"))
}

func startLogind(t *testing.T, root string, delay time.Duration) *busLogind {
	t.Helper()
	l := &busLogind{t: t, root: root, calls: make(chan string, 100), locks: make(chan *os.File, 100), handed: make(chan *os.File, 100), asked: make(chan struct{}, 1),
		preparing: make(chan bool, 1), delay: make(chan uint64, 1)}
	l.preparing <- false
	l.delay <- uint64(delay / time.Microsecond)
	l.conn = connect(t, root)
	for _, e := range []struct {
		methods     any
		path, iface string
	}{
		{loginMethods{l}, loginObject, loginManager},
		{propertyMethods{l}, loginObject, "org.freedesktop.DBus.Properties"},
		{systemdMethods{l}, systemdObject, systemdManager},
	} {
		if err := l.conn.Export(e.methods, dbus.ObjectPath(e.path), e.iface); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{systemdService, loginService} {
		if reply, err := l.conn.RequestName(name, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			t.Fatalf("name %s: %v, %v", name, reply, err)
		}
	}
	return l
}

func connect(t *testing.T, root string) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect("unix:path=" + filepath.Join(root, cgroups.BusSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (l *busLogind) prepare(down bool) {
	l.t.Helper()
	<-l.preparing
	l.preparing <- down
	if err := l.conn.Emit(loginObject, loginManager+"."+prepareSignal, down); err != nil {
		l.t.Error(err)
	}
}

func (l *busLogind) wantCall(want string) {
	l.t.Helper()
	select {
	case got := <-l.calls:
		if got != want {
			l.t.Fatalf("call %q, want %q", got, want)
		}
	case <-time.After(patience):
		l.t.Fatalf("no call %q", want)
	}
}

// released waits until a lock that was handed out is closed.
func (l *busLogind) released() <-chan struct{} {
	lock := <-l.locks
	done := make(chan struct{})
	go func() {
		_, _ = lock.Read(make([]byte, 1)) // EOF when nobody holds the other end
		_ = lock.Close()
		close(done)
	}()
	return done
}

func receive[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
	}
	return v
}

func TestOverARealBus(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	stop := startBus(t, root)
	l := startLogind(t, root, 5*time.Second)
	changed := make(chan bool, 10)
	var m *Manager
	b := newBoard(t, threePeriods, io.Discard)
	b.add(newPod("web", 0, 30), never)
	m = New(Config{
		State: NewState(), Periods: threePeriods, Pods: b.list, End: b.end, Ended: b.hasEnded,
		Changed: func() { changed <- m.InProgress() },
		Events:  event.NewRecorder(slog.New(slog.DiscardHandler)), Root: root, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()

	l.wantCall("systemd-logind.service all 1")
	l.wantCall("shutdown kubelet delay")
	released := l.released()
	receive(t, "question", l.asked)

	// Somebody else's signal means nothing.
	if err := connect(t, root).Emit(loginObject, loginManager+"."+prepareSignal, true); err != nil {
		t.Fatal(err)
	}
	l.prepare(true)
	if down := receive(t, "change", changed); !down {
		t.Error("not in progress")
	}
	select {
	case <-released:
		t.Error("the lock was given back before the pods had ended")
	default:
	}
	b.mu.Lock()
	b.ended["web"] = true
	b.mu.Unlock()
	m.Notify()
	receive(t, "release of the lock", released)
	l.prepare(false)
	if down := receive(t, "change", changed); down {
		t.Error("still in progress")
	}
	l.wantCall("shutdown kubelet delay")
	released = l.released()
	l.prepare(false) // has the agent ask once more
	receive(t, "question", l.asked)

	// Another bus takes the place of this one.
	stop()
	startBus(t, root)
	l = startLogind(t, root, time.Hour)
	l.wantCall("shutdown kubelet delay")
	receive(t, "release of the old lock", released)
	released = l.released()
	receive(t, "question", l.asked)
	cancel()
	if err := receive(t, "end of Run", over); !errors.Is(err, context.Canceled) {
		t.Errorf("Run answered %v", err)
	}
	receive(t, "release of the last lock", released)
}

func TestNoLogindOnTheBus(t *testing.T) {
	root := t.TempDir()
	startBus(t, root)
	l, err := dialLogind(t.Context(), filepath.Join(root, cgroups.BusSocket))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Delay(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "read logind's InhibitDelayMaxUSec: ") {
		t.Errorf("got %v", err)
	}
	if lock, err := l.Inhibit(t.Context()); err == nil || lock != nil {
		t.Errorf("got %v, %v", lock, err)
	}
	if err := l.Reload(t.Context()); err == nil {
		t.Error("reloaded nobody")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	receive(t, "end of the connection", l.Lost())
}

func TestDelayWithoutEnd(t *testing.T) {
	root := t.TempDir()
	startBus(t, root)
	logind := startLogind(t, root, 0)
	<-logind.delay
	logind.delay <- 1<<64 - 1
	l, err := dialLogind(t.Context(), filepath.Join(root, cgroups.BusSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if d, err := l.Delay(t.Context()); err != nil || d < 24*365*time.Hour {
		t.Errorf("got %v, %v", d, err)
	}
}

func TestNoBus(t *testing.T) {
	if l, err := dialLogind(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil || l != nil {
		t.Errorf("got %v, %v", l, err)
	}
}
