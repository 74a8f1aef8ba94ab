package apiclient

import (
	"sync"
	"sync/atomic"
	"time"
)

// today is what was on the wire when the day began. It costs no timer: the
// first byte of a day notices it.
type today struct {
	number atomic.Int64 // of the day

	mu             sync.Mutex
	sent, received uint64
}

// dayOf numbers the days where the board is.
func dayOf(now time.Time) int64 {
	_, east := now.Zone()
	seconds := now.Unix() + int64(east)
	if seconds < 0 {
		seconds -= 86399 // towards the past, as above 0
	}
	return seconds / 86400
}

// notice is called before a byte is counted.
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

// Today is how many bytes went over the wire on the day that now is of, by the
// board's clock and time zone: since the last midnight, the first byte, or the
// setting of a clock that was of another day, whichever was last.
func (m *Meter) Today(now time.Time) (sent, received uint64) {
	m.today.mu.Lock()
	defer m.today.mu.Unlock()
	if m.today.number.Load() != dayOf(now) {
		return 0, 0
	}
	return less(m.wire.sent.Load(), m.today.sent), less(m.wire.received.Load(), m.today.received)
}
