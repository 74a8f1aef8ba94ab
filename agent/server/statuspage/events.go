package statuspage

import (
	"net/http"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// maxWatches limits concurrent watchers, so that the listener has connections
// left for /healthz.
const maxWatches = 8

const (
	// minPeriod is the minimum time between two states for one watcher.
	minPeriod = time.Second
	// maxPeriod is the time after which a state is sent without a change. It keeps
	// the resource usage current, and the browser detects a dead connection.
	maxPeriod = 5 * time.Second
	// firstPeriod is the time between the first two states. CPU usage needs
	// two readings.
	firstPeriod = 1500 * time.Millisecond
	// writeTimeout limits the writes of one state. A watcher that does not read within
	// it is disconnected.
	writeTimeout = 10 * time.Second
)

// serveEvents serves /page/events: server-sent events. Each has a complete state, or
// is named trouble and has an error text. It ends with the request, or when the
// client stops reading.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	select {
	case p.watches <- struct{}{}:
		defer func() { <-p.watches }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many watchers of the status page; close one of them", http.StatusServiceUnavailable)
		return
	}
	ctx, timer := r.Context(), time.NewTimer(maxPeriod)
	defer timer.Stop()
	if p.acquire(ctx) != nil {
		return
	}
	p.watching++
	p.release()
	defer p.removeWatcher()
	slot := make(chan struct{}, 1)
	defer p.config.Notify(slot)()

	for period := firstPeriod; ; period = maxPeriod {
		state, err := p.read(ctx, time.Now())
		if err == nil {
			err = send(w, "", state)
		} else {
			err = send(w, "trouble", []byte(singleLine(err.Error())))
		}
		if err != nil {
			return // the client has disconnected, or ctx ended
		}
		if !wait.Pause(ctx, minPeriod) {
			return
		}
		timer.Reset(period - minPeriod)
		select {
		case <-ctx.Done():
			return
		case <-slot:
		case <-timer.C:
		}
	}
}

// removeWatcher unregisters a watcher. The last one drops the cached state.
func (p *Page) removeWatcher() {
	p.lock <- struct{}{} // held only while a state is read
	if p.watching--; p.watching == 0 {
		p.last = nil
	}
	p.release()
}

// singleLine replaces control characters by spaces: a line break would end the
// event's data.
func singleLine(text string) string {
	return strings.Map(func(r rune) rune { return max(r, ' ') }, text)
}

// send writes an event and flushes it. name may be empty.
func send(w http.ResponseWriter, name string, data []byte) error {
	control := http.NewResponseController(w)
	// The server's deadline is for a whole response.
	if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	for _, part := range [...][]byte{[]byte(name + "data: "), data, []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return control.Flush()
}
