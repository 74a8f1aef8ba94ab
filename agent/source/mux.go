package source

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// Mux merges the full sets of several sources into one ordered stream. It
// starts no goroutine. Its methods are safe for concurrent use.
//
// The first complete set of a source, which may have no pods, takes this path:
//
//	Set --> send on Updates --> the consumer acts on it --> Seen --> Ready
//
// If such a set causes no update of its source other than REMOVE, an ADD without pods is sent.
// The consumer must not call Seen for a partial update or a REMOVE. Cleanup may begin when
// Ready returns true.
type Mux struct {
	expected []string
	events   *event.Recorder
	updates  chan Update

	// token holds one token. Its holder owns the fields below and may send.
	token     chan struct{}
	order     []string // sources in the order of their first set
	desired   map[string][]*v1.Pod
	partial   map[string]bool
	live      map[types.UID]*livePod
	announced map[string]bool
	reported  map[string]struct{} // conflicts already reported by an event

	mu   sync.Mutex
	seen map[string]bool
}

// NewMux returns a Mux that is ready when the consumer has seen all expected
// sources. With none expected it is ready at once.
func NewMux(events *event.Recorder, expected ...string) *Mux {
	m := &Mux{
		expected:  expected,
		events:    events,
		updates:   make(chan Update),
		token:     make(chan struct{}, 1),
		desired:   make(map[string][]*v1.Pod),
		partial:   make(map[string]bool),
		live:      make(map[types.UID]*livePod),
		announced: make(map[string]bool),
		reported:  make(map[string]struct{}),
		seen:      make(map[string]bool),
	}
	m.token <- struct{}{}
	return m
}

// Updates returns the stream. It has one consumer, is unbuffered, and is never
// closed. Set treats an update as applied once it is received.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Seen records that the consumer has acted on an update of the source that is
// neither partial nor a REMOVE. Only the first call for each source has an effect.
func (m *Mux) Seen(source string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[source] = true
}

// Ready reports whether the consumer has seen every expected source. Once true,
// it stays true.
func (m *Mux) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(m.expected, func(source string) bool { return !m.seen[source] })
}

// Set replaces the full desired set of a source. It blocks until the consumer
// has received every change, or ctx ends; the next Set of any source continues
// from what was received. The consumer must not call it. The pods belong to the
// mux from now on and are shared with the consumer: they must not be modified.
// Of two pods with the same name or UID, the live one wins, then the one of the source that
// has the live pod of that name, then the first in the order of the sources' first sets.
func (m *Mux) Set(ctx context.Context, source string, set PodSet) {
	select {
	case <-m.token:
	case <-ctx.Done():
		return
	}
	defer func() { m.token <- struct{}{} }()

	if _, known := m.desired[source]; !known {
		m.order = append(m.order, source)
	}
	m.desired[source], m.partial[source] = set.Pods, set.Partial
	delete(m.desired, set.Replaces)

	winners, refused := resolve(m.candidates(), m.live)
	m.warn(refused)
	for _, c := range diff(winners, m.live, time.Now()) {
		c.Partial = m.partial[c.Source]
		if !m.send(ctx, c.Update) {
			return
		}
		m.apply(c)
	}
	if !m.announced[source] && !set.Partial {
		m.send(ctx, Update{Op: ADD, Source: source})
	}
}

func (m *Mux) candidates() []candidate {
	var claims []candidate
	for _, source := range m.order {
		for _, p := range m.desired[source] {
			claims = append(claims, candidate{source: source, pod: p})
		}
	}
	return claims
}

func (m *Mux) send(ctx context.Context, u Update) bool {
	select {
	case m.updates <- u:
		if u.Op != REMOVE && !u.Partial {
			m.announced[u.Source] = true
		}
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *Mux) apply(c change) {
	for _, l := range c.live {
		if c.Op == REMOVE {
			delete(m.live, l.pod.UID)
		} else {
			m.live[l.pod.UID] = l
		}
	}
}

// warn emits one event for each pod that loses a conflict, and another one only after the
// conflict has ended.
func (m *Mux) warn(refused []conflict) {
	reported := make(map[string]struct{}, len(refused))
	for _, r := range refused {
		key := fmt.Sprintf("%s %s %s", r.loser.source, pod.RefOf(r.loser.pod), r.loser.pod.UID)
		if _, old := m.reported[key]; !old {
			m.events.Warning(pod.RefOf(r.loser.pod), ReasonDuplicatePod, r.message())
		}
		reported[key] = struct{}{}
	}
	m.reported = reported
}
