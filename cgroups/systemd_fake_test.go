package cgroups

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// manager is a systemd that manages slices of a fake tree, as systemd 252 was
// seen to do it by TestOnSystemd: on its own socket it leaves a first call
// until more comes, and tells of a job's end before it answers the call that
// began it; SetUnitProperties takes units that nobody has made, and StopUnit
// those that do not run.
type manager struct {
	*fake
	root    string // of the file system
	version string

	mu     sync.Mutex
	units  map[string]map[string]any // properties of those that run, by name
	jobs   int
	calls  []string
	conns  map[net.Conn]bool
	dialed int

	// fault says what happens to a call of a method, once for each entry.
	faults map[string][]fault
	// results are how the jobs of a method end, "done" where it has none.
	results map[string]string
	// alone has the bus answer that systemd is not on it.
	alone bool
}

type fault int

const (
	hangs   fault = iota + 1 // no answer
	cuts                     // the connection breaks before the call is heard of
	cutsOff                  // the connection breaks when it is done
	endless                  // its job does not end
)

func newManager(t testing.TB, controllers string) *manager {
	t.Helper()
	root, err := os.MkdirTemp("", "sd") // short, as the path of a socket has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	m := &manager{
		fake: newFake(t, controllers), root: root, version: "252.38-1~deb12u1",
		units: make(map[string]map[string]any), conns: make(map[net.Conn]bool),
		faults: make(map[string][]fault), results: make(map[string]string),
	}
	for _, dir := range []string{bootedDirectory, filepath.Dir(BusSocket)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// listen answers at a socket until the test ends, or stop is called.
func (m *manager) listen(socket string) (stop func()) {
	m.t.Helper()
	bus := socket == BusSocket
	listener, err := new(net.ListenConfig).Listen(m.t.Context(), "unix", filepath.Join(m.root, socket))
	if err != nil {
		m.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns[conn] = true
			m.dialed++
			m.mu.Unlock()
			wg.Go(func() {
				m.serve(conn, bus)
				_ = conn.Close()
				m.mu.Lock()
				delete(m.conns, conn)
				m.mu.Unlock()
			})
		}
	})
	stop = sync.OnceFunc(func() {
		_ = listener.Close()
		m.cut()
		wg.Wait()
	})
	m.t.Cleanup(stop)
	return stop
}

// cut breaks all connections.
func (m *manager) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.conns {
		_ = conn.Close()
	}
}

func (m *manager) serve(conn net.Conn, bus bool) {
	in := bufio.NewReader(conn)
	if introduced(conn, in) != nil {
		return
	}
	var left *dbus.Message
	for first := !bus; ; first = false {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if first {
			left = msg
			continue
		}
		if left != nil && !m.answer(conn, left, bus) {
			return
		}
		left = nil
		if !m.answer(conn, msg, bus) {
			return
		}
	}
}

// introduced is the server's side of the authentication, as systemd has it
// (D-Bus specification, authentication protocol).
func introduced(conn io.Writer, in *bufio.Reader) error {
	if zero, err := in.ReadByte(); err != nil || zero != 0 {
		return errors.New("no null byte")
	}
	for _, step := range []struct{ ask, answer string }{
		{"AUTH", "REJECTED EXTERNAL"}, {"AUTH EXTERNAL", "DATA"}, {"DATA", "OK 0123456789abcdef"}, {"BEGIN", ""},
	} {
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != step.ask {
			return fmt.Errorf("got %q, %w", line, err)
		}
		if step.answer != "" {
			if _, err := io.WriteString(conn, step.answer+"\r\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer answers one call, and says whether the connection goes on.
func (m *manager) answer(conn io.Writer, msg *dbus.Message, bus bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	method, _ := msg.Headers[dbus.FieldMember].Value().(string)
	if method != "Get" && method != "AddMatch" { // the former until there is an answer, the latter also without a bus
		m.calls = append(m.calls, describe(method, msg.Body))
	}
	var broken fault
	if queue := m.faults[method]; len(queue) > 0 {
		broken, m.faults[method] = queue[0], queue[1:]
	}
	switch broken {
	case hangs:
		return true
	case cuts:
		return false
	case cutsOff, endless: // once it is done
	}
	body, fail := m.handle(method, msg.Body)
	if broken == cutsOff {
		return false
	}
	var ended *dbus.Message
	if path, ok := one[dbus.ObjectPath](body); ok && broken != endless {
		result := m.results[method]
		if result == "" {
			result = "done"
		}
		unit, _ := msg.Body[0].(string)
		ended = jobRemoved([]any{uint32(m.jobs), path, unit, result})
	}
	reply := message(dbus.TypeMethodReply, body)
	if fail != nil {
		reply = message(dbus.TypeError, fail.Body)
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(fail.Name)
	}
	reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(msg.Serial())
	order := []*dbus.Message{ended, reply}
	if bus {
		slices.Reverse(order)
	}
	for _, each := range order {
		if each != nil && each.EncodeTo(conn, binary.LittleEndian) != nil {
			return false
		}
	}
	return true
}

func message(kind dbus.Type, body []any) *dbus.Message {
	msg := &dbus.Message{Type: kind, Headers: make(map[dbus.HeaderField]dbus.Variant), Body: body}
	if len(body) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return msg
}

// jobRemoved is the signal of a job's end.
func jobRemoved(body []any) *dbus.Message {
	m := message(dbus.TypeSignal, body)
	m.Headers[dbus.FieldPath] = dbus.MakeVariant(dbus.ObjectPath(systemdObject))
	m.Headers[dbus.FieldInterface] = dbus.MakeVariant(managerInterface)
	m.Headers[dbus.FieldMember] = dbus.MakeVariant("JobRemoved")
	m.Headers[dbus.FieldSender] = dbus.MakeVariant(systemdService)
	return m
}

func one[T any](body []any) (v T, ok bool) {
	if len(body) != 1 {
		return v, false
	}
	v, ok = body[0].(T)
	return v, ok
}

// describe is a call as the tests look for it: its method, and its unit.
func describe(method string, body []any) string {
	if len(body) > 0 {
		if unit, ok := body[0].(string); ok && strings.HasSuffix(unit, sliceSuffix) {
			return method + " " + unit
		}
	}
	return method
}

func (m *manager) handle(method string, body []any) ([]any, *dbus.Error) {
	switch method {
	case "Hello":
		return []any{":1.7"}, nil
	case "AddMatch":
		return nil, nil
	}
	if m.alone {
		return nil, dbus.NewError("org.freedesktop.DBus.Error.ServiceUnknown", []any{"nobody has that name"})
	}
	if method == "Get" {
		return []any{dbus.MakeVariant(m.version)}, nil
	}
	unit, _ := body[0].(string)
	if strings.HasSuffix(unit, scopeSuffix) && method == "SetUnitProperties" {
		return nil, nil // a scope is somebody else's, and its group is not known here
	}
	if strings.HasSuffix(unit, serviceSuffix) && method == "SetUnitProperties" {
		for _, p := range body[2].([][]any) { // nor is a service's
			m.units[unit][p[0].(string)] = p[1].(dbus.Variant).Value()
		}
		return nil, nil
	}
	levels, err := slicesOf(folder(unit))
	if err != nil {
		return nil, invalid("bad unit name " + unit)
	}
	switch method {
	case "StartTransientUnit":
		return m.startTransient(unit, levels, body)
	case "SetUnitProperties":
		return nil, m.set(unit, body[2])
	case "StartUnit":
		m.run(levels)
		return m.job(), nil
	case "StopUnit":
		m.stop(unit, levels)
		return m.job(), nil
	case "ResetFailedUnit":
		if m.units[unit] == nil {
			return nil, dbus.NewError(noSuchUnit, []any{"not loaded"})
		}
		return nil, nil
	}
	return nil, dbus.NewError("org.freedesktop.DBus.Error.UnknownMethod", []any{method})
}

func (m *manager) startTransient(unit string, levels []slice, body []any) ([]any, *dbus.Error) {
	if m.units[unit] != nil {
		return nil, dbus.NewError(unitExists, []any{"already loaded"})
	}
	m.units[unit] = make(map[string]any)
	if fail := m.set(unit, body[2]); fail != nil {
		delete(m.units, unit)
		return nil, fail
	}
	m.run(levels)
	return m.job(), nil
}

// run has slices with all above them run, and their groups be there. What they
// get is not read back from the parent's file: unlike the kernel's, it is empty
// for a moment while somebody writes it.
func (m *manager) run(levels []slice) {
	dir := m.at()
	for _, each := range levels {
		have := m.get(filepath.Join(dir, fileControllers))
		m.put(filepath.Join(dir, fileSubtree), have)
		dir = m.at(each.path)
		if err := m.makeGroupWith(dir, have); err != nil && !errors.Is(err, os.ErrExist) {
			m.t.Error(err)
		}
		if m.units[each.unit] == nil {
			m.units[each.unit] = make(map[string]any)
		}
	}
	m.write(levels[len(levels)-1].unit)
}

// set takes properties, whose files it writes if the unit runs.
func (m *manager) set(unit string, list any) *dbus.Error {
	for _, p := range list.([][]any) {
		name, value := p[0].(string), p[1].(dbus.Variant).Value()
		number, isNumber := value.(uint64)
		switch name {
		case "DefaultDependencies", "CPUAccounting", "IOAccounting", "MemoryAccounting", "TasksAccounting":
			continue
		case "Wants":
			if got := value.([]string); len(got) != 1 || !strings.HasPrefix(unit, strings.TrimSuffix(got[0], sliceSuffix)+"-") {
				m.t.Errorf("%s wants %q", unit, got)
			}
			continue
		case "CPUQuotaPeriodUSec":
			if parseVersion(m.version) < since[name] {
				return dbus.NewError("org.freedesktop.DBus.Error.PropertyReadOnly", []any{"unknown property " + name})
			}
		}
		if !isNumber || name == "TasksMax" && number == 0 || name == "CPUWeight" && (number == 0 || number > 10000) {
			return invalid(name + " is out of range")
		}
		if m.units[unit] != nil {
			m.units[unit][name] = number
		}
	}
	m.write(unit)
	return nil
}

// write is what systemd writes for a slice that has a group.
func (m *manager) write(unit string) {
	dir := m.at(folder(unit))
	for file, name := range numbers {
		value, ok := m.units[unit][name].(uint64)
		if _, err := os.Stat(filepath.Join(dir, file)); !ok || err != nil {
			continue
		}
		text := fmt.Sprint(value)
		if value == infinity {
			text = "max"
		}
		m.put(filepath.Join(dir, file), text)
	}
}

func (m *manager) stop(unit string, levels []slice) {
	if m.results["StopUnit"] != "" {
		return
	}
	name := strings.TrimSuffix(unit, sliceSuffix)
	for other := range m.units {
		if other == unit || strings.HasPrefix(other, name+"-") {
			delete(m.units, other)
		}
	}
	if err := os.RemoveAll(m.at(levels[len(levels)-1].path)); err != nil {
		m.t.Error(err)
	}
}

func (m *manager) job() []any {
	m.jobs++
	return []any{dbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", m.jobs))}
}

func invalid(text string) *dbus.Error {
	return dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{text})
}

// folder is where systemd puts a slice's group.
func folder(unit string) string {
	name := strings.TrimSuffix(unit, sliceSuffix)
	var out []string
	for i, r := range name {
		if r == '-' {
			out = append(out, name[:i]+sliceSuffix)
		}
	}
	return strings.Join(append(out, unit), "/")
}

// called are the calls since the last time.
func (m *manager) called() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.calls
	m.calls = nil
	return out
}

// fails has the next calls of a method meet faults.
func (m *manager) fails(method string, f ...fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[method] = f
}

func (m *manager) property(unit, name string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.units[unit][name]
}
