package source

import (
	"net/http"
	"time"
)

// SetRescan sets the rescan period.
func (f *File) SetRescan(period time.Duration) { f.rescan = period }

// SetTransport sets the transport of all requests.
func (h *HTTP) SetTransport(transport http.RoundTripper) { h.client.Transport = transport }
