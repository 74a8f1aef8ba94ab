package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Drain is how a Server drains the node.
type Drain struct {
	// Begin terminates the pods. It blocks until they have terminated, their
	// grace periods are over, or ctx ends; the latter does not stop the
	// termination. The Server waits for its return.
	Begin func(ctx context.Context) error
	// Cancel makes the node admit pods again. It must not block.
	Cancel func()
	// Remaining returns the number of pods that have not terminated. It must not
	// block.
	Remaining func() int
}

// DrainProgress is the progress of a drain.
type DrainProgress struct {
	// Remaining is the number of pods that have not terminated.
	Remaining int `json:"left"`
	// Done marks the last line. Error is why the drain failed, or "".
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// drainProgressPeriod is the period of progress updates to a waiting client.
const drainProgressPeriod = time.Second

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	d := s.config.Drain
	var begin sync.WaitGroup
	defer begin.Wait()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	ended := make(chan error, 1)
	begin.Go(func() { ended <- d.Begin(ctx) })
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	send := func(line DrainProgress) bool {
		// The server's deadline is for a whole response.
		return errors.Join(control.SetWriteDeadline(time.Now().Add(writeTimeout)), lines.Encode(line), control.Flush()) == nil
	}
	ticker := time.NewTicker(drainProgressPeriod)
	defer ticker.Stop()
	for last := -1; ; {
		if left := d.Remaining(); left != last {
			last = left
			if !send(DrainProgress{Remaining: left}) {
				return
			}
		}
		select {
		case <-ticker.C:
		case err := <-ended:
			line := DrainProgress{Remaining: d.Remaining(), Done: true}
			if err != nil {
				line.Error = err.Error()
			}
			send(line)
			return
		}
	}
}

func (s *Server) cancelDrain(w http.ResponseWriter, _ *http.Request) {
	s.config.Drain.Cancel()
	writeJSON(w, http.StatusOK, struct{}{})
}

// Drain makes the agent terminate the node's pods. It calls progress with the number of
// remaining pods whenever that changes, at most once a second. It blocks until the drain
// is over, the agent exits (ErrNotRunning) or ctx ends; the latter does not stop the
// termination. It returns the number of remaining pods.
func (c *Client) Drain(ctx context.Context, progress func(left int)) (left int, err error) {
	for line, err := range stream[DrainProgress](ctx, c, http.MethodPost, PathDrain) {
		if err != nil {
			return left, fmt.Errorf("call agent on %s: %w", c.path, err)
		}
		left = line.Remaining
		if line.Done {
			if line.Error != "" {
				return left, errors.New(line.Error)
			}
			return left, nil
		}
		progress(left)
	}
	return left, nil
}

// CancelDrain makes the node admit pods again. Terminated pods are not
// restarted.
func (c *Client) CancelDrain(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, PathDrain, func(io.Reader) error { return nil })
}
