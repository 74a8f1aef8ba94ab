// Package statuspage is the status page: what someone with a browser sees of the
// node. It owns one static HTML file, the JSON that feeds it, and who may look.
//
// The page only shows; it changes nothing, and no other method than GET and
// HEAD is answered. While nobody looks there is no goroutine, no timer and no
// memory held: the state is asked for by each request, and by each watcher
// when something has changed, at most each second, and each 5 s for the
// figures. Watchers are few, they share what was read for one of them, and one
// that does not read is cut off.
//
// Names of pods and texts of events come from strangers. The page puts them
// into text nodes only, and its Content-Security-Policy runs no script but its
// own.
package statuspage

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"encoding/json"
	"errors"
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

// Config is what a Page needs.
type Config struct {
	// State reads what there is to see. It may be called at once, and what it
	// answers is not changed afterwards.
	State func(ctx context.Context) (*State, error)
	// Notify fills slot, which has room for one, whenever State may answer
	// something else, figures apart, until cancel is called.
	Notify func(slot chan<- struct{}) (cancel func())
	// Token answers the token that callers need; it is asked for each
	// request, and an error keeps everybody out. nil is that whoever connects
	// may look: then the listener must be bound to the loopback address.
	Token func() (string, error)
	Log   *slog.Logger
}

// Page is an http.Handler. It is safe for concurrent use. Its answers end
// with the request's context.
type Page struct {
	config  Config
	watches chan struct{} // one item for each that watches
	turn    chan struct{} // held by who reads or uses last

	last     []byte // the newest state, kept while there are watchers
	lastRead time.Time
	watching int

	refused sync.Once // a token that cannot be read is told of once
}

// New checks the configuration. It starts and reads nothing.
func New(c Config) (*Page, error) {
	if c.State == nil || c.Notify == nil || c.Log == nil {
		return nil, errors.New("make status page: State, Notify and Log are needed")
	}
	return &Page{config: c, watches: make(chan struct{}, maxWatches), turn: make(chan struct{}, 1)}, nil
}

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", policyNothing)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "the status page only shows: use GET")
		return
	}
	if !p.allowed(w, r) {
		return
	}
	switch r.URL.Path {
	case pathPage:
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy())
		_, _ = w.Write(index) // the client went away
	case pathState:
		p.answer(w, r)
	case pathEvents:
		p.events(w, r)
	default:
		refuse(w, http.StatusNotFound, "the status page has no "+r.URL.Path+": see /")
	}
}

// answer is /page/state.
func (p *Page) answer(w http.ResponseWriter, r *http.Request) {
	state, err := p.read(r.Context(), time.Now())
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(state) // the client went away
}

// read answers the state as JSON, in one line, as it was at a time after
// since; it is shared and not to be changed.
func (p *Page) read(ctx context.Context, since time.Time) ([]byte, error) {
	if err := p.take(ctx); err != nil {
		return nil, err
	}
	defer p.give()
	if p.last != nil && !p.lastRead.Before(since) {
		return p.last, nil
	}
	began := time.Now()
	state, err := p.config.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the node's state: %w", err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("write the node's state: %w", err)
	}
	if p.watching > 0 {
		p.last, p.lastRead = text, began
	}
	return text, nil
}

// take waits for the turn.
func (p *Page) take(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Page) give() { <-p.turn }

// refuse answers in plain text.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // the client went away
}

//go:embed index.html
var index []byte

// policyNothing is for answers that are no page.
const policyNothing = "default-src 'none'; frame-ancestors 'none'"

// policy lets the page's own script and style run, and nothing else.
var policy = sync.OnceValue(func() string {
	return "default-src 'none'; connect-src 'self'; img-src data:; script-src '" + hashOf("script") + "'; style-src '" + hashOf("style") +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// hashOf is the hash of the page's only element of that name.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(index, []byte("<"+element+">"))
	content, _, _ := strings.Cut(string(rest), "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
