package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	if s.config.Watch == nil {
		writeJSON(w, http.StatusNotImplemented, Error{"event watch is not supported"})
		return
	}
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
// and then with each new or repeated event. It blocks until ctx ends (and
// returns the cause), handle fails (its error), or the agent exits
// (ErrNotRunning).
func (c *Client) WatchEvents(ctx context.Context, handle func(event.Event) error) error {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(answerTimeout, func() { cancel(ErrNoResponse) })
	defer silence.Stop()
	var failed handlerError
	err := c.stream(asking, http.MethodGet, PathEvents+"?watch=true", func(line []byte) error {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read response: %w", err)
		}
		if err := handle(e); err != nil {
			return handlerError{err}
		}
		return nil
	}, func() { silence.Stop() })
	if errors.As(err, &failed) {
		return failed.error
	}
	return fmt.Errorf("watch events of agent on %s: %w", c.path, explain(asking, err))
}

// handlerError is an error of the caller's handle, to be returned unchanged.
type handlerError struct{ error }

// stream calls begun once the response starts, and then handle with each line.
// A response that ends is ErrNotRunning.
func (c *Client) stream(ctx context.Context, method, path string, handle func([]byte) error, begun func()) error {
	resp, err := c.open(ctx, method, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	begun()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return ErrNotRunning
		}
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := handle(line); err != nil {
			return err
		}
	}
}
