package statuspage

import (
	"net/http"
	"time"
)

// maxWatches bounds how many may watch at once, so that the listener has
// connections left for /healthz.
const maxWatches = 8

const (
	// pause is the shortest time between two states.
	pause = time.Second
	// figures is the longest: it keeps the figures current, and tells the
	// browser that the connection lives.
	figures = 5 * time.Second
	// firstFigures comes after the first state: CPU is known from two
	// readings only.
	firstFigures = 1500 * time.Millisecond
	// stall is how long a state may take to be sent before its watcher is cut
	// off.
	stall = 10 * time.Second
)

// events is /page/events: server-sent events, each of which is a whole state,
// or named trouble with a text if there is none to be had. It ends with the
// request or with the client's reading.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	select {
	case p.watches <- struct{}{}:
		defer func() { <-p.watches }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "too many watch the status page already; close one of them")
		return
	}
	if !p.join(r) {
		return
	}
	defer p.leave()
	slot := make(chan struct{}, 1)
	defer p.config.Notify(slot)()

	ctx, timer := r.Context(), time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	out := stream{to: w, control: http.NewResponseController(w)}
	for wait := firstFigures; ; wait = figures {
		state, err := p.read(ctx, time.Now())
		if err == nil {
			err = out.send("", state)
		} else {
			err = out.send("trouble", []byte(line(err.Error())))
		}
		if err != nil {
			return // the client went away, or ctx ended
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(wait - pause)
		select {
		case <-ctx.Done():
			return
		case <-slot:
		case <-timer.C:
		}
	}
}

// join counts a watcher in, and leave counts it out; the last one takes the
// state along.
func (p *Page) join(r *http.Request) bool {
	if p.take(r.Context()) != nil {
		return false
	}
	p.watching++
	p.give()
	return true
}

func (p *Page) leave() {
	p.turn <- struct{}{} // held only as long as a state is read
	if p.watching--; p.watching == 0 {
		p.last = nil
	}
	p.give()
}

// line keeps a text on one line: a line break would end the event's data.
func line(text string) string {
	out := []byte(text)
	for i, c := range out {
		if c < ' ' {
			out[i] = ' '
		}
	}
	return string(out)
}

// stream writes server-sent events.
type stream struct {
	to      http.ResponseWriter
	control *http.ResponseController
}

func (s *stream) send(name string, data []byte) error {
	// The deadline that the server set is for the whole of an answer.
	if err := s.control.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return err
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	for _, part := range [...][]byte{[]byte(name + "data: "), data, []byte("\n\n")} {
		if _, err := s.to.Write(part); err != nil {
			return err
		}
	}
	return s.control.Flush()
}
