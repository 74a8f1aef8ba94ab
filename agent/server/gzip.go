package server

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const (
	// minGzipSize is the minimum size in bytes of a compressed response: a smaller
	// one fits into one packet anyway.
	minGzipSize = 1400
	// maxGzipWriters limits concurrent compressions. Each uses 1.2 MB; further
	// responses are sent uncompressed.
	maxGzipWriters = 2
)

// gzipPool is a limited pool of gzip writers. Go's garbage collector may free unused
// ones.
type gzipPool struct {
	places slot
	pool   sync.Pool
}

func newGzipPool() *gzipPool {
	return &gzipPool{places: make(slot, maxGzipWriters), pool: sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}}
}

// gzipResponse is a response writer that compresses a response of at least minGzipSize
// bytes if a slot is free.
type gzipResponse struct {
	from  *gzipPool
	to    *deadlineWriter
	held  []byte
	began bool         // held was written
	zip   *gzip.Writer // nil: not compressed
}

// Write implements io.Writer.
func (c *gzipResponse) Write(data []byte) (int, error) {
	switch {
	case c.zip != nil:
		return c.zip.Write(data)
	case c.began:
		return c.to.Write(data)
	case len(c.held)+len(data) < minGzipSize:
		c.held = append(c.held, data...)
		return len(data), nil
	}
	c.began = true
	if c.from.places.try() {
		c.zip = c.from.pool.Get().(*gzip.Writer)
		c.zip.Reset(c.to)
		c.to.Header().Set("Content-Encoding", "gzip")
	}
	if held := c.held; len(held) > 0 {
		c.held = nil
		if _, err := c.Write(held); err != nil {
			return 0, err
		}
	}
	return c.Write(data)
}

func (c *gzipResponse) finish() error {
	switch {
	case c.zip != nil:
		return c.zip.Close()
	case len(c.held) > 0:
		_, err := c.to.Write(c.held)
		return err
	}
	return nil
}

func (c *gzipResponse) release() {
	if c.zip == nil {
		return
	}
	c.zip.Reset(nil)
	c.from.pool.Put(c.zip)
	c.from.places.free()
}

// acceptsGzip reports whether the client accepts gzip (RFC 9110, 12.5.3).
func acceptsGzip(h http.Header) bool {
	for _, line := range h["Accept-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q="); ok {
				value, err := strconv.ParseFloat(q, 32)
				return err == nil && value > 0
			}
			return true
		}
	}
	return false
}
