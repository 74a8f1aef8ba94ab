package apiclient

import (
	"sync"
	"sync/atomic"
	"time"
)

// today holds the byte counts at the begin of the current day. It needs no timer:
// the first byte of a day updates it.
type today struct {
	number atomic.Int64 // see dayOf

	mu             sync.Mutex
	sent, received uint64
}

// dayOf numbers the days in the time zone of now.
func dayOf(now time.Time) int64 {
	year, month, day := now.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// notice begins a new day if necessary. It is called before a byte is counted.
func (m *Meter) notice(now time.Time) {
	d := &m.today
	if day := dayOf(now); d.number.Load() != day {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.number.Swap(day) != day {
			d.sent, d.received = m.wire.sent.Load(), m.wire.received.Load()
		}
	}
}

// Today returns the bytes on the wire on the day of now, in the node's time zone:
// since midnight, since the first byte, or since the clock was set to another day,
// whichever was last.
func (m *Meter) Today(now time.Time) (sent, received uint64) {
	m.today.mu.Lock()
	defer m.today.mu.Unlock()
	if m.today.number.Load() != dayOf(now) {
		return 0, 0
	}
	return less(m.wire.sent.Load(), m.today.sent), less(m.wire.received.Load(), m.today.received)
}
