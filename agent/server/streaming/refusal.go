package streaming

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/tinylet/tinylet/agent/container"
)

// maxBody limits the text of an error response in bytes.
const maxBody = 16 << 10

// httpError is an error with the HTTP response for it.
type httpError struct {
	code   int
	header http.Header // additional headers; may be nil
	text   string
}

func (r *httpError) Error() string { return r.text }

var errEnded = &httpError{code: http.StatusServiceUnavailable, text: "agent is shutting down"}

// httpErrorOf maps errors to status codes. The kubelet returns 500 for these errors;
// here each cause has its own code.
func httpErrorOf(err error) *httpError {
	var r *httpError
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
	return &httpError{code: code, text: err.Error()}
}

func (r *httpError) write(w http.ResponseWriter) {
	header := w.Header()
	plainText(header)
	maps.Copy(header, r.header)
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
