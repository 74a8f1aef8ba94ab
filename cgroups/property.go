package cgroups

import (
	"math"
	"strconv"
	"strings"

	units "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// newProperty returns a property of a unit. The library has functions for some only.
func newProperty(name string, value any) units.Property {
	return units.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// numbers maps files with one number to the property of systemd, which has the D-Bus type
// t (systemd.resource-control(5), org.freedesktop.systemd1(5)). The largest number means
// "max". Other limits are only written to their file, which systemd does not change.
var numbers = map[string]string{
	fileCPUWeight:     "CPUWeight",
	"io.weight":       "IOWeight",
	"memory.high":     "MemoryHigh",
	"memory.low":      "MemoryLow",
	fileMemoryMax:     "MemoryMax",
	fileMemoryMin:     "MemoryMin",
	"memory.swap.max": "MemorySwapMax",
	filePidsMax:       "TasksMax",
}

// since has the first version of systemd with a property, for properties that are newer
// than systemd's support for cgroup v2 (NEWS of systemd). An unknown property is an error.
var since = map[string]int{"MemoryMin": 240, "CPUQuotaPeriodUSec": 242}

const (
	infinity      = uint64(math.MaxUint64)
	defaultPeriod = 100000  // microseconds, by cgroup-v2.rst
	second        = 1000000 // microseconds
	percent       = second / 100
	maxQuota      = 1<<44 - 1 // microseconds (max_bw_quota_period_us in kernel/sched of Linux)
)

// properties returns r as properties for systemd of that version. 0 is an unknown one.
func (r Resources) properties(version int) []units.Property {
	var out []units.Property
	for _, s := range r.settings() {
		if s.file == fileCPUMax {
			out = append(out, r.CPUMax.properties()...)
		} else if name, ok := numbers[s.file]; ok {
			if value, ok := propertyNumber(s.value); ok {
				out = append(out, newProperty(name, value))
			}
		}
	}
	kept := out[:0]
	for _, p := range out {
		if p.Name == "TasksMax" && p.Value.Value() == uint64(0) {
			p = newProperty(p.Name, uint64(1)) // 0 is out of its range
		}
		if version == 0 || version >= since[p.Name] {
			kept = append(kept, p)
		}
	}
	return kept
}

// propertyNumber parses the value of a file: a number, with "default" before it in
// io.weight, or "max".
func propertyNumber(text string) (uint64, bool) {
	text = strings.TrimPrefix(text, "default ")
	if text == "max" {
		return infinity, true
	}
	value, err := strconv.ParseUint(text, 10, 64)
	return value, err == nil
}

func (m CPUMax) properties() []units.Property {
	perSecond := infinity
	if m.Quota > 0 {
		perSecond = m.perSecond()
	}
	return []units.Property{newProperty("CPUQuotaPeriodUSec", m.period()), newProperty("CPUQuotaPerSecUSec", perSecond)}
}

// perSecond returns the quota in microseconds a second. The kernel rejects a quota above
// maxQuota.
func (m CPUMax) perSecond() uint64 { return uint64(min(m.Quota, maxQuota)) * second / m.period() }

func (m CPUMax) period() uint64 {
	if m.Period == 0 {
		return defaultPeriod
	}
	return m.Period
}

// Whole returns m with its quota rounded up to a whole percent of a CPU. systemd keeps no
// more of it, and a cgroup below could get more than the slice otherwise (addCPUQuota in
// systemd/common.go of opencontainers/cgroups). A quota that the kernel rejects is returned
// as it is.
func (m CPUMax) Whole() CPUMax {
	if m.Quota <= 0 || m.Quota > maxQuota {
		return m
	}
	perSecond := m.perSecond()
	if over := perSecond % percent; over != 0 {
		m.Quota = int64((perSecond - over + percent) * m.period() / second)
	}
	return m
}
