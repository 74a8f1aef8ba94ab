package streaming

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxHeld is how many bytes of pings are kept back; what is over goes at once.
const maxHeld = 4 << 10

// hold keeps the client's pings back while there is something left to read of
// the runtime. A runtime that is done closes its connection with what it has
// written still under way, megabytes of it where the client is slow. A byte
// that reaches it then is answered with a reset (RFC 9293, section 3.6.1), and
// what was under way is dropped. To the client that looks like the end: of a
// file that kubectl cp fetched the tail was missing when an API server's ping,
// which comes each five seconds, was late by a moment.
type hold struct {
	runtime net.Conn
	held    atomic.Bool // there are pings

	mu    sync.Mutex // of writers
	pings []byte
}

// write passes b on, behind what is held, or holds it.
func (h *hold) write(b []byte, ping bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ping && waiting(h.runtime) > 0 && len(h.pings)+len(b) <= maxHeld {
		h.pings = append(h.pings, b...)
		h.held.Store(true)
		if waiting(h.runtime) > 0 {
			return nil // who reads the rest sees that something is held
		}
		b = nil
	}
	if err := h.release(); err != nil || len(b) == 0 {
		return err
	}
	_, err := h.runtime.Write(b)
	return err
}

// due says whether something is held that may go now.
func (h *hold) due() bool { return h.held.Load() && waiting(h.runtime) == 0 }

// flush passes on what is held.
func (h *hold) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.release() // the next write meets the same error
}

// drop forgets what is held: a client that has ended its side may still want
// all output, and no ping's answer is worth that.
func (h *hold) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pings = nil
	h.held.Store(false)
}

// release is flush with the lock held.
func (h *hold) release() error {
	pings := h.pings
	h.pings = nil
	h.held.Store(false)
	if len(pings) == 0 {
		return nil
	}
	_, err := h.runtime.Write(pings)
	return err
}
