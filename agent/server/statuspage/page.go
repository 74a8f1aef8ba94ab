// Package statuspage serves the status page of the node for browsers. It
// consists of one static HTML file, the JSON with its data, and access control.
//
// The page is read-only: only GET and HEAD are accepted. Without watchers there is no
// goroutine and no timer, and no state is kept. The state is read for each request. For
// a watcher it is read after each change, at most once a second, and every 5 s for the
// resource usage. The number of watchers is limited. They share the state that is read.
// A watcher that does not read is disconnected.
//
// Names of pods and messages of events are untrusted. The page puts them into
// text nodes only, and its Content-Security-Policy allows no script but its own.
package statuspage

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Paths that the page is made of.
const (
	pathPage   = "/"
	pathState  = "/page/state"
	pathEvents = "/page/events"
)

// Config configures a Page.
type Config struct {
	// State returns the data of the page. The result must not be modified
	// afterwards.
	State func(ctx context.Context) (*State, error)
	// Notify sends to slot, which has room for one item, whenever the result
	// of State may have changed other than in resource usage, until cancel is
	// called.
	Notify func(slot chan<- struct{}) (cancel func())
	// Token returns the token that clients need. It is called for each
	// request; an error denies access. With nil every client has access, so
	// the listener must be bound to the loopback address.
	Token func() (string, error)
	Log   *slog.Logger
}

// Page is the http.Handler of the status page. It is safe for concurrent use.
// Its responses end with the request's context.
type Page struct {
	config  Config
	watches chan struct{} // one item for each watcher
	lock    chan struct{} // lock of last, lastRead and watching

	last     []byte // the newest state, kept while there are watchers
	lastRead time.Time
	watching int

	tokenErrorOnce sync.Once // logs only the first error of Token
}

// New returns a Page. It starts and reads nothing.
func New(c Config) *Page {
	return &Page{config: c, watches: make(chan struct{}, maxWatches), lock: make(chan struct{}, 1)}
}

// ServeHTTP serves the page, its state and its events.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", denyAllPolicy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the status page is read-only: use GET", http.StatusMethodNotAllowed)
		return
	}
	if !p.authorize(w, r) {
		return
	}
	switch r.URL.Path {
	case pathPage:
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy())
		_, _ = w.Write(index) // the client has disconnected
	case pathState:
		p.serveState(w, r)
	case pathEvents:
		p.serveEvents(w, r)
	default:
		http.Error(w, "not found: "+r.URL.Path+"; the status page is at /", http.StatusNotFound)
	}
}

func (p *Page) serveState(w http.ResponseWriter, r *http.Request) {
	state, err := p.read(r.Context(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(state) // the client has disconnected
}

// read returns the state as JSON in one line. The reading of the state began no earlier
// than since. The result is shared and must not be modified.
func (p *Page) read(ctx context.Context, since time.Time) ([]byte, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer p.release()
	if p.last != nil && !p.lastRead.Before(since) {
		return p.last, nil
	}
	began := time.Now()
	state, err := p.config.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read node state: %w", err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("encode node state: %w", err)
	}
	if p.watching > 0 {
		p.last, p.lastRead = text, began
	}
	return text, nil
}

// acquire acquires the lock of last. It returns ctx's cause if ctx ends first.
func (p *Page) acquire(ctx context.Context) error {
	select {
	case p.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Page) release() { <-p.lock }

//go:embed index.html
var index []byte

// denyAllPolicy is the Content-Security-Policy of responses other than the page.
const denyAllPolicy = "default-src 'none'; frame-ancestors 'none'"

// policy is the Content-Security-Policy of the page. It allows only the page's
// own script and style.
var policy = sync.OnceValue(func() string {
	return "default-src 'none'; connect-src 'self'; img-src data:; script-src '" + hashOf("script") + "'; style-src '" + hashOf("style") +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// hashOf returns the hash of the page's only element of that name.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(index, []byte("<"+element+">"))
	content, _, _ := strings.Cut(string(rest), "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
