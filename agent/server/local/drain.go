package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Drain is how a Server has the node's pods end. Its zero value cannot.
type Drain struct {
	// Begin ends the pods, and blocks until they have ended, their time is
	// over, or ctx ends, whatever becomes of them then.
	Begin func(ctx context.Context) error
	// Cancel has the node take pods again. It must not block.
	Cancel func()
	// Left is how many pods have not ended. It must not block.
	Left func() int
}

// Drained is how far the pods' end has come.
type Drained struct {
	// Left is how many pods have not ended.
	Left int `json:"left"`
	// Done says that this is the last line; Error is why pods are left, "" if
	// none has to be.
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// drainLook is how often somebody who waits for the end is told of it.
const drainLook = time.Second

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	d := s.config.Drain
	if d.Begin == nil {
		answer(w, http.StatusNotImplemented, Error{"pods cannot be ended here"})
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Begin(r.Context()) }()
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	tell := func(line Drained) bool {
		// The one that the server set is for the whole of an answer.
		return errors.Join(control.SetWriteDeadline(time.Now().Add(writeTimeout)), lines.Encode(line), control.Flush()) == nil
	}
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for last := -1; ; {
		if left := d.Left(); left != last {
			last = left
			if !tell(Drained{Left: left}) {
				return // Begin ends with the request
			}
		}
		select {
		case <-ticker.C:
		case err := <-ended:
			line := Drained{Left: d.Left(), Done: true}
			if err != nil {
				line.Error = err.Error()
			}
			tell(line)
			return
		}
	}
}

func (s *Server) cancelDrain(w http.ResponseWriter, _ *http.Request) {
	if s.config.Drain.Cancel == nil {
		answer(w, http.StatusNotImplemented, Error{"pods cannot be ended here"})
		return
	}
	s.config.Drain.Cancel()
	answer(w, http.StatusOK, struct{}{})
}

// Drain has the agent end the node's pods, calls progress with the number of
// those that are left whenever it changes, and blocks until it is over, or ctx
// ends; the pods go on ending then. It answers how many are left.
func (c *Client) Drain(ctx context.Context, progress func(left int)) (left int, err error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(answerTimeout, func() { cancel(ErrNoAnswer) })
	defer silence.Stop()
	var over overError
	err = c.stream(asking, http.MethodPost, PathDrain, func(text []byte) error {
		var line Drained
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		left = line.Left
		if line.Done {
			return overError{line.Error}
		}
		progress(line.Left)
		return nil
	}, func() { silence.Stop() })
	switch {
	case !errors.As(err, &over):
		return left, c.failed(asking, err)
	case over.why != "":
		return left, over
	}
	return left, nil
}

// CancelDrain has the node take pods again. Those that have ended stay so.
func (c *Client) CancelDrain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, ErrNoAnswer)
	defer cancel()
	resp, err := c.open(ctx, http.MethodDelete, PathDrain)
	if err != nil {
		return c.failed(ctx, err)
	}
	return resp.Body.Close()
}

// overError ends the reading of an answer after its last line.
type overError struct{ why string }

func (e overError) Error() string { return e.why }
