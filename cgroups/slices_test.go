package cgroups

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

// patience bounds waits in real time that end much sooner.
const patience = 20 * time.Second

// hurry is for who waits for what does not come.
const hurry = 200 * time.Millisecond

// newSlices are slices of a manager, which may be slow.
func newSlices(t *testing.T, m *manager) *Slices {
	t.Helper()
	s := m.NewSlices(m.root)
	s.systemd.answerTime, s.systemd.jobTime = patience, patience
	t.Cleanup(s.Close)
	return s
}

func TestSlicesOf(t *testing.T) {
	for _, row := range []struct {
		path string
		want []string // nil is an error
	}{
		{"/a.slice", []string{"a.slice"}},
		{"a.slice/a-b_c.slice/a-b_c-d.slice", []string{"a.slice", "a-b_c.slice", "a-b_c-d.slice"}},
		{"/", nil},
		{"", nil},
		{"/a", nil},
		{"/.slice", nil},
		{"/-.slice", nil},
		{"/a-b.slice", nil},
		{"/a.slice/b.slice", nil},
		{"/a.slice/a-.slice", nil},
		{"/a.slice/a-b-c.slice", nil},
		{"/a.slice/a-b.scope", nil},
		{"/a.slice/../b", nil},
		{"/../a.slice", nil},
	} {
		got, err := slicesOf(row.path)
		var units []string
		for _, each := range got {
			units = append(units, each.unit)
		}
		if diff := cmp.Diff(row.want, units); diff != "" || (err == nil) != (row.want != nil) {
			t.Errorf("%s: %v\n%s", row.path, err, diff)
		}
	}
}

func TestProperties(t *testing.T) {
	full := Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 12500, Period: 50000}, MemoryMax: 1 << 20, PidsMax: 9}
	for _, row := range []struct {
		name    string
		r       Resources
		version int
		want    map[string]any
	}{
		{"nothing", Resources{}, 252, map[string]any{}},
		{"all", full, 252, map[string]any{
			"CPUWeight": uint64(20), "CPUQuotaPeriodUSec": uint64(50000), "CPUQuotaPerSecUSec": uint64(250000),
			"MemoryMax": uint64(1 << 20), "TasksMax": uint64(9),
		}},
		{"an old systemd takes no period", full, 241, map[string]any{
			"CPUWeight": uint64(20), "CPUQuotaPerSecUSec": uint64(250000), "MemoryMax": uint64(1 << 20), "TasksMax": uint64(9),
		}},
		{"without limits", Resources{CPUMax: CPUMax{Quota: Unlimited}, MemoryMax: Unlimited, PidsMax: Unlimited}, 0, map[string]any{
			"CPUQuotaPeriodUSec": uint64(100000), "CPUQuotaPerSecUSec": infinity, "MemoryMax": infinity, "TasksMax": infinity,
		}},
	} {
		got := make(map[string]any)
		for _, p := range row.r.properties(row.version) {
			got[p.Name] = p.Value.Value()
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
	for text, want := range map[string]uint64{"max": infinity, "12": 12, "default 100": 100} {
		if got, ok := propertyNumber(text); !ok || got != want {
			t.Errorf("%q: %d, %t", text, got, ok)
		}
	}
	if _, ok := propertyNumber("0-3"); ok {
		t.Error("0-3 is no number")
	}
}

// A quota is rounded up to what systemd keeps, as with a kubelet.
func TestWholePercent(t *testing.T) {
	for _, row := range []struct{ in, want CPUMax }{
		{CPUMax{}, CPUMax{}},
		{CPUMax{Quota: Unlimited}, CPUMax{Quota: Unlimited}},
		{CPUMax{Quota: 15000}, CPUMax{Quota: 15000}},
		{CPUMax{Quota: 12500, Period: 100000}, CPUMax{Quota: 13000, Period: 100000}},
		{CPUMax{Quota: 1001, Period: 100000}, CPUMax{Quota: 2000, Period: 100000}},
		{CPUMax{Quota: 2500, Period: 20000}, CPUMax{Quota: 2600, Period: 20000}},
		// The product with a second was too large for 64 bits.
		{CPUMax{Quota: 1e14, Period: 100000}, CPUMax{Quota: 1e14, Period: 100000}},
		{CPUMax{Quota: maxQuota - 4415, Period: 100000}, CPUMax{Quota: maxQuota - 4415, Period: 100000}},
	} {
		if got := row.in.Whole(); got != row.want {
			t.Errorf("%+v: %+v, want %+v", row.in, got, row.want)
		}
	}
}

func TestPropertyOfAHugeQuota(t *testing.T) {
	got := CPUMax{Quota: 1e14, Period: 100000}.properties()[1]
	if perSecond := got.Value.Value().(uint64); perSecond < 1e14 {
		t.Errorf("%s is %d", got.Name, perSecond)
	}
}

func TestVersionOf(t *testing.T) {
	for text, want := range map[any]int{"252.38-1~deb12u1": 252, "v245": 245, "257": 257, "git": 0, "": 0, 7: 0} {
		if got, err := versionOf([]any{dbus.MakeVariant(text)}); got != want || err != nil {
			t.Errorf("%v: %d, %v, want %d", text, got, err, want)
		}
	}
	if got, err := versionOf(nil); err == nil {
		t.Errorf("an answer without a value: %d", got)
	}
}

// Systemd is told of the limits as well, and by its calls alone: it writes
// them anew when it reloads its units.
func TestSystemdKnowsTheLimits(t *testing.T) {
	m := newManager(t, all)
	m.listen(privateSocket)
	s := newSlices(t, m)
	must(t, s.Ensure("/a.slice/a-b.slice", Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 12500}, MemoryMax: 1 << 20}))
	must(t, s.Ensure("/a.slice/a-b.slice", Resources{CPUWeight: 30}))
	must(t, s.Delete("/a.slice/a-b.slice"))
	want := []string{
		"StartTransientUnit a.slice", "StartTransientUnit a-b.slice",
		"StartTransientUnit a-b.slice", "SetUnitProperties a-b.slice",
		"StopUnit a-b.slice", "ResetFailedUnit a-b.slice",
	}
	if diff := cmp.Diff(want, m.called()); diff != "" {
		t.Error(diff)
	}
	must(t, s.Ensure("/a.slice/a-b.slice", Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 12500}}))
	for name, want := range map[string]any{"CPUWeight": uint64(20), "CPUQuotaPerSecUSec": uint64(130000), "CPUQuotaPeriodUSec": uint64(100000), "MemoryMax": nil} {
		if got := m.property("a-b.slice", name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := m.get(m.at("a.slice/a-b.slice", fileCPUMax)); got != "13000" {
		t.Errorf("cpu.max is %q", got)
	}
}

// A unit that is loaded and does not run is started.
func TestLoadedAndNotRunning(t *testing.T) {
	m := newManager(t, all)
	m.listen(privateSocket)
	s := newSlices(t, m)
	m.units["a.slice"] = map[string]any{}
	must(t, s.Ensure("/a.slice", Resources{CPUWeight: 20}))
	want := []string{"StartTransientUnit a.slice", "SetUnitProperties a.slice", "StartUnit a.slice"}
	if diff := cmp.Diff(want, m.called()); diff != "" {
		t.Error(diff)
	}
}

func TestNoSystemd(t *testing.T) {
	m := newManager(t, all)
	s := newSlices(t, m)
	err := s.Ensure("/a.slice", Resources{})
	if !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), BusSocket) || !strings.Contains(err.Error(), privateSocket) {
		t.Errorf("without a socket: %v", err)
	}
	if err := CheckSystemd(m.root); !errors.Is(err, ErrUnanswered) {
		t.Errorf("asked without a socket: %v", err)
	}
	stop := m.listen(privateSocket)
	must(t, CheckSystemd(m.root))
	if err := CheckSystemBus(m.root); err == nil || !strings.Contains(err.Error(), BusSocket) {
		t.Errorf("asked without a bus: %v", err)
	}
	noBus := m.listen(BusSocket)
	must(t, CheckSystemBus(m.root))
	noBus()
	stop()
	s.systemd.root = t.TempDir()
	if SystemdRuns(s.systemd.root) || !errors.Is(CheckSystemd(s.systemd.root), ErrNoSystemd) {
		t.Error("systemd runs in an empty folder")
	}
	err = s.Ensure("/a.slice", Resources{})
	if !errors.Is(err, ErrNoSystemd) || !strings.Contains(err.Error(), "SystemdCgroup = false") {
		t.Errorf("without systemd: %v", err)
	}
	if s.Exists("/a.slice") {
		t.Error("made without systemd")
	}
	if err := s.Ensure("/a/b", Resources{}); !errors.Is(err, ErrNotSlice) {
		t.Errorf("no slice: %v", err)
	}
}

// Each fault ends in time, and the next try gets on.
func TestFaults(t *testing.T) {
	const path = "/a.slice"
	limits := Resources{MemoryMax: 4096}
	for _, row := range []struct {
		name   string
		method string
		faults []fault
		want   error // nil where one try is enough
	}{
		{"no answer to the first calls", "Get", slices.Repeat([]fault{hangs}, 99), ErrUnanswered},
		{"no answer to a start", "StartTransientUnit", []fault{hangs}, ErrUnanswered},
		{"a job that does not end", "StartTransientUnit", []fault{endless}, ErrUnanswered},
		{"cut before the start", "StartTransientUnit", []fault{cuts}, nil},
		{"cut after the start", "StartTransientUnit", []fault{cutsOff}, nil},
		{"cut again and again", "StartTransientUnit", []fault{cuts, cuts}, ErrUnanswered},
		{"no answer to new limits", "SetUnitProperties", []fault{hangs}, ErrUnanswered},
		{"no answer to a stop", "StopUnit", []fault{hangs}, ErrUnanswered},
		{"a stop that does not end", "StopUnit", []fault{endless}, ErrUnanswered},
		{"cut in a stop", "StopUnit", []fault{cutsOff}, nil},
		{"cut in forgetting that it failed", "ResetFailedUnit", []fault{cutsOff}, nil},
	} {
		for _, socket := range []string{BusSocket, privateSocket} {
			t.Run(row.name+" at "+filepath.Base(socket), func(t *testing.T) {
				m := newManager(t, all)
				m.listen(socket)
				s := newSlices(t, m)
				what := func() error { return s.Ensure(path, limits) }
				if row.method != "Get" { // the connection is one that was used
					must(t, s.Ensure("/other.slice", limits))
				}
				switch row.method {
				case "SetUnitProperties":
					must(t, s.Ensure(path, Resources{}))
				case "StopUnit", "ResetFailedUnit":
					must(t, s.Ensure(path, limits))
					what = func() error { return s.Delete(path) }
				}
				m.fails(row.method, row.faults...)
				if row.want != nil {
					s.systemd.answerTime, s.systemd.jobTime = hurry, hurry
				}
				begun := time.Now()
				if err := what(); !errors.Is(err, row.want) {
					t.Errorf("got %v, want %v", err, row.want)
				}
				if took := time.Since(begun); took > patience/2 {
					t.Errorf("it took %v", took)
				}
				m.fails(row.method)
				s.systemd.answerTime, s.systemd.jobTime = patience, patience
				must(t, what())
				if gone := row.method == "StopUnit" || row.method == "ResetFailedUnit"; gone == s.Exists(path) {
					t.Errorf("gone is %t", !gone)
				}
			})
		}
	}
}

// A job that ends otherwise is told with its result.
func TestFailedJobs(t *testing.T) {
	m := newManager(t, all)
	m.listen(privateSocket)
	s := newSlices(t, m)
	must(t, s.Ensure("/a.slice", Resources{}))
	m.results["StopUnit"] = "failed"
	if err := s.Delete("/a.slice"); err == nil || !strings.Contains(err.Error(), `"failed"`) {
		t.Errorf("got %v", err)
	}
	if !s.Exists("/a.slice") {
		t.Error("its group was taken from systemd")
	}
	delete(m.results, "StopUnit")
	must(t, s.Delete("/a.slice"))
	m.results["StartTransientUnit"] = "dependency"
	if err := s.Ensure("/b.slice", Resources{}); err == nil || !strings.Contains(err.Error(), `"dependency"`) {
		t.Errorf("got %v", err)
	}
}

// A bus that hangs, or that systemd is not on, is passed by.
func TestBadBus(t *testing.T) {
	for _, row := range []struct {
		name string
		bad  func(bus *manager)
	}{
		{"hangs", func(bus *manager) { bus.fails("Hello", hangs) }},
		{"breaks off", func(bus *manager) { bus.fails("AddMatch", cuts) }},
		{"has no systemd", func(bus *manager) { bus.alone = true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newManager(t, all)
			m.listen(privateSocket)
			bus := newManager(t, all)
			bus.root = m.root
			bus.listen(BusSocket)
			row.bad(bus)
			s := newSlices(t, m)
			s.systemd.answerTime = 3 * time.Second // of the bus' hang
			must(t, s.Ensure("/a.slice", Resources{}))
			if len(bus.called()) == 0 || m.property("a.slice", "none") != nil || !m.Exists("a.slice") {
				t.Error("the bus was not asked, or systemd not past it")
			}
		})
	}
}

// The text said twice that systemd does not answer.
func TestTextOfABrokenConnection(t *testing.T) {
	m := newManager(t, all)
	m.listen(privateSocket)
	m.fails("Get", slices.Repeat([]fault{cuts}, 99)...)
	err := newSlices(t, m).Ensure("/a.slice", Resources{})
	if !errors.Is(err, ErrUnanswered) || !errors.Is(err, errBroken) || strings.Count(err.Error(), ErrUnanswered.Error()) != 1 {
		t.Error(err)
	}
}

// A restart of systemd or of the bus is not noticed.
func TestRestart(t *testing.T) {
	m := newManager(t, all)
	stop := m.listen(BusSocket)
	s := newSlices(t, m)
	must(t, s.Ensure("/a.slice", Resources{}))
	stop()
	if err := s.Ensure("/a.slice", Resources{}); !errors.Is(err, ErrUnanswered) {
		t.Errorf("meanwhile: %v", err)
	}
	m.listen(BusSocket)
	must(t, s.Ensure("/a.slice", Resources{}))
	if m.dialed != 2 {
		t.Errorf("%d connections", m.dialed)
	}
}

// A connection serves many at once, and ends when nobody has used it for a
// while; nothing is left of it.
func TestOneConnection(t *testing.T) {
	before := runtime.NumGoroutine()
	m := newManager(t, all)
	stop := m.listen(privateSocket)
	s := newSlices(t, m)
	s.systemd.idleTime = 50 * time.Millisecond
	errs := make(chan error)
	units := []string{"/a.slice", "/b.slice", "/c.slice", "/d.slice"}
	for _, path := range units {
		go func() { errs <- errors.Join(s.Ensure(path, Resources{CPUWeight: 2}), s.Delete(path)) }()
	}
	for range units {
		must(t, <-errs)
	}
	if m.dialed != 1 {
		t.Errorf("%d connections", m.dialed)
	}
	until(t, "end of the connection", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.conns) == 0
	})
	must(t, s.Ensure("/a.slice", Resources{}))
	if m.dialed != 2 {
		t.Errorf("%d connections", m.dialed)
	}
	s.Close()
	stop()
	until(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// Close ends what waits for a systemd that hangs.
func TestCloseWhileItHangs(t *testing.T) {
	for _, method := range []string{"", "Hello", "StartTransientUnit"} {
		m := newManager(t, all)
		m.listen(BusSocket)
		s := m.NewSlices(m.root)
		s.systemd.answerTime, s.systemd.jobTime = time.Hour, time.Hour
		m.fails(method, hangs)
		if method == "" { // it does not even say hello
			m.mu.Lock()
		}
		done := make(chan error)
		go func() { done <- s.Ensure("/a.slice", Resources{}) }()
		if method != "" {
			until(t, "call", func() bool {
				calls := strings.Join(m.called(), " ")
				return strings.Contains(calls, method)
			})
		} else {
			time.Sleep(50 * time.Millisecond)
		}
		s.Close()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: no error", method)
			}
		case <-time.After(patience):
			t.Fatalf("%s: it still waits", method)
		}
		if method == "" {
			m.mu.Unlock()
		}
		if err := s.Ensure("/a.slice", Resources{}); !errors.Is(err, errClosed) {
			t.Errorf("afterwards: %v", err)
		}
		s.Close()
	}
}
