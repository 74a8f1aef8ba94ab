package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// maxWatches limits concurrent event watches, so that connections remain for
// other requests.
const maxWatches = maxConnections / 4

// watchEvents responds with a line for each event until either side closes the
// connection.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		writeJSON(w, http.StatusServiceUnavailable, Error{"too many event watches; end one of them"})
		return
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	// It fails if the client disconnects or the agent shuts down.
	_ = s.config.Watch(r.Context(), func(events []event.Event) error {
		// The server's deadline is for a whole response.
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		for i := range events {
			if err := enc.Encode(&events[i]); err != nil {
				return err
			}
		}
		return control.Flush()
	})
}

// WatchEvents calls handle with each of the recent events, the oldest first,
// and then with each new or repeated event. It blocks until ctx ends (and returns the
// cause), handle fails (its error), or the agent ends the response (ErrNotRunning): it
// exits, or a write to this client took longer than 30 s.
func (c *Client) WatchEvents(ctx context.Context, handle func(event.Event) error) error {
	for e, err := range stream[event.Event](ctx, c, http.MethodGet, PathEvents+"?watch=true") {
		if err != nil {
			return fmt.Errorf("watch events of agent on %s: %w", c.path, err)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// stream yields the lines of a response. Unless the caller stops, it ends with an error: one
// of Client, or the cause of ctx's end. A response that ends is ErrNotRunning.
func stream[T any](ctx context.Context, c *Client, method, path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(answerTimeout, func() { cancel(ErrNoResponse) })
		defer silence.Stop()
		var v T
		resp, err := c.open(ctx, method, path)
		if err == nil {
			defer resp.Body.Close()
			silence.Stop()
			lines := bufio.NewReader(resp.Body)
			for v, err = readLine[T](lines); err == nil; v, err = readLine[T](lines) {
				if !yield(v, nil) {
					return
				}
			}
		}
		yield(v, explain(ctx, err))
	}
}

func readLine[T any](lines *bufio.Reader) (v T, err error) {
	line, err := lines.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return v, ErrNotRunning
	case err != nil:
		return v, err
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return v, fmt.Errorf("read response: %w", err)
	}
	return v, nil
}
