package cgroups

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Crun has a container's processes in a group below its scope, which bounds
// them as well: a limit that only the scope had would not be theirs.
func TestLimitsOfAScope(t *testing.T) {
	const scope = "/a.slice/cri-containerd-1.scope"
	for _, inner := range []bool{false, true} {
		m := newManager(t, all)
		m.listen(privateSocket)
		s := newSlices(t, m)
		must(t, s.Ensure("/a.slice", Resources{CPUWeight: 20}))
		must(t, m.Ensure(scope, Resources{CPUWeight: 30, CPUMax: CPUMax{Quota: 34000, Period: 100000}, MemoryMax: 2 << 20}))
		payload := scope
		if inner {
			payload += "/container"
			must(t, m.Ensure(payload, Resources{CPUMax: CPUMax{Quota: 33300, Period: 100000}, MemoryMax: 1 << 20}))
		}
		if got := m.Payload(scope); got != payload {
			t.Errorf("the processes are in %s, want %s", got, payload)
		}
		known := func(n uint64) Figure { return Figure{n, true} }
		want := Limits{CPUWeight: known(30), CPUQuota: known(34000), CPUPeriod: 100000, MemoryMax: known(2 << 20)}
		if inner {
			want.CPUQuota, want.MemoryMax = known(33300), known(1<<20)
		}
		got, err := s.Limits(scope)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("inner %v: %v\n%s", inner, err, diff)
		}
		for _, group := range []string{scope, payload} {
			m.put(m.at(group, "memory.high"), "1000000")
			m.put(m.at(group, fileCPUs), "0")
		}
		must(t, s.Set(scope, Resources{MemoryMax: 4 << 20, CPUMax: CPUMax{Quota: Unlimited}, Unified: map[string]string{"memory.high": "max"}}))
		for _, group := range []string{scope, payload} {
			for file, want := range map[string]string{fileMemoryMax: "4194304", fileCPUMax: "max", "memory.high": "max"} {
				if got := m.get(m.at(group, file)); got != want {
					t.Errorf("%s of %s is %q, want %q", file, group, got, want)
				}
			}
		}
		must(t, m.SetCPUs(scope, "1"))
		if got, err := m.CPUs(payload); got != "1" || err != nil {
			t.Errorf("the processes' CPUs are %q, %v", got, err)
		}
	}
}

// Only a scope has a group of that meaning: pods' slices have none, and without
// systemd a container's own group may be called anything.
func TestPayloadIsOfScopes(t *testing.T) {
	f := newFake(t, all)
	for _, path := range []string{"/pods/1", "/a.slice"} {
		must(t, f.Ensure(path+"/container", Resources{}))
		if got := f.Payload(path); got != path {
			t.Errorf("the processes of %s are in %s", path, got)
		}
	}
	if got := f.Payload("/a.slice/none.scope"); got != "/a.slice/none.scope" {
		t.Errorf("one that is not there: %s", got)
	}
}

func TestLowerLimitOfCPU(t *testing.T) {
	of := func(quota, period uint64) Limits {
		return Limits{CPUQuota: Figure{quota, true}, CPUPeriod: period}
	}
	for _, row := range []struct {
		l, other Limits
		want     bool
	}{
		{of(33300, 100000), of(34000, 100000), true},
		{of(34000, 100000), of(33300, 100000), false},
		{of(100, 1000), of(11000, 100000), true},
		{of(NoLimit, 100000), of(33300, 100000), false},
		{of(33300, 100000), of(NoLimit, 100000), true},
		{of(33300, 100000), Limits{}, true},
		{Limits{}, of(33300, 100000), false},
		{Limits{}, Limits{}, false},
	} {
		if got := row.l.lessCPU(row.other); got != row.want {
			t.Errorf("%+v less than %+v: %v", row.l, row.other, got)
		}
	}
}

// A service that systemd has started gets what it is given, in its unit and in
// the kernel's file; nothing below it is anybody's but its own.
func TestLimitsOfAService(t *testing.T) {
	const service = "/system.slice/tinylet.service"
	m := newManager(t, all)
	m.listen(privateSocket)
	s := newSlices(t, m)
	must(t, m.Ensure(service+"/container", Resources{}))
	for _, group := range []string{service, service + "/container"} {
		m.put(m.at(group, fileMemoryMin), "0\n")
	}
	m.units["tinylet.service"] = map[string]any{}
	must(t, s.Set(service, Resources{Unified: map[string]string{fileMemoryMin: "4096"}}))
	if got := m.property("tinylet.service", "MemoryMin"); got != uint64(4096) {
		t.Errorf("systemd has MemoryMin %v", got)
	}
	if got, err := m.MemoryMin(service); got != 4096 || err != nil {
		t.Errorf("%d bytes are protected, %v", got, err)
	}
	if got, err := m.MemoryMin(service + "/container"); got != 0 || err != nil {
		t.Errorf("%d bytes are protected below, %v", got, err)
	}
	m.put(m.at(service, fileMemoryMin), "max\n")
	if got, err := m.MemoryMin(service); got != NoLimit || err != nil {
		t.Errorf("all that it uses is protected: %d, %v", got, err)
	}
	if _, err := m.MemoryMin("/none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no group: %v", err)
	}
}
