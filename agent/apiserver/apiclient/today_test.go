package apiclient

import (
	"testing"
	"time"
)

func TestToday(t *testing.T) {
	var m Meter
	east := time.FixedZone("east", 2*3600)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, east)
	for _, step := range []struct {
		name  string
		at    time.Time
		bytes uint64
		want  uint64 // sent today; half as much is received
	}{
		{"nothing yet", noon, 0, 0},
		{"the first bytes", noon, 100, 100},
		{"later that day", noon.Add(11 * time.Hour), 50, 150},
		{"past midnight here, the day before in Greenwich", noon.Add(13 * time.Hour), 10, 10},
		{"the same day", noon.Add(20 * time.Hour), 10, 20},
		{"a clock that is not set", time.Unix(5, 0).In(east), 2, 2},
		{"and before 1970", time.Unix(-9000, 0).In(east), 2, 2},
		{"set again", noon, 6, 6},
	} {
		if step.bytes > 0 {
			m.notice(step.at)
			m.wire.sent.Add(step.bytes)
			m.wire.received.Add(step.bytes / 2)
		}
		if sent, received := m.Today(step.at); sent != step.want || received != step.want/2 {
			t.Errorf("%s: %d sent, %d received, want %d", step.name, sent, received, step.want)
		}
	}
	if sent, received := m.Today(noon.AddDate(0, 0, 1)); sent != 0 || received != 0 {
		t.Errorf("the next day, before a byte: %d, %d", sent, received)
	}
}
