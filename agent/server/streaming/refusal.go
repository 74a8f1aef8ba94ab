package streaming

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/tinylet/tinylet/agent/container"
)

// maxBody limits the text of an error response in bytes.
const maxBody = 16 << 10

// refusal is an error with the HTTP response for it.
type refusal struct {
	code   int
	header http.Header // additional headers; may be nil
	text   string
}

func (r *refusal) Error() string { return r.text }

var errEnded = &refusal{code: http.StatusServiceUnavailable, text: "agent is shutting down"}

// refusalOf maps errors to status codes. The kubelet returns 500 for these errors;
// here each cause has its own code.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, container.ErrNotFound):
		code = http.StatusNotFound
	case errors.Is(err, ErrNotRunning):
		code = http.StatusConflict
	case errors.Is(err, container.ErrTimeout):
		code = http.StatusGatewayTimeout
	case errors.Is(err, container.ErrUnsupported):
		code = http.StatusNotImplemented
	case errors.Is(err, container.ErrUnavailable), errors.Is(err, context.Canceled):
		code = http.StatusServiceUnavailable
	}
	return &refusal{code: code, text: err.Error()}
}

func (r *refusal) write(w http.ResponseWriter) {
	header := w.Header()
	plainText(header)
	for name, values := range r.header {
		header[name] = values
	}
	if r.code == http.StatusTooManyRequests && header.Get("Retry-After") == "" {
		header.Set("Retry-After", retryAfter)
	}
	w.WriteHeader(r.code)
	_, _ = io.WriteString(w, strings.ToValidUTF8(r.text[:min(len(r.text), maxBody)], "")) // fails only if the client has disconnected
}

func plainText(header http.Header) {
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
}
