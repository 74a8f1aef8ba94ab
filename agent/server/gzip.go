package server

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const (
	// worthGzip is from how many bytes on an answer is compressed: less fits
	// into one packet anyway.
	worthGzip = 1400
	// maxDeflaters is how many answers are compressed at a time. Each takes
	// 1.2 MB; the others go out as they are.
	maxDeflaters = 2
)

// deflaters hand out writers that compress. Between two uses they are the
// garbage collector's.
type deflaters struct {
	places slot
	pool   sync.Pool
}

func newDeflaters() *deflaters {
	return &deflaters{places: make(slot, maxDeflaters)}
}

// compressed is an answer that is compressed from worthGzip bytes on, if
// there is a place for that then.
type compressed struct {
	from  *deflaters
	to    *paced
	held  []byte
	began bool         // what was held has gone out
	zip   *gzip.Writer // nil: as it is
}

func (d *deflaters) writer(to *paced) *compressed { return &compressed{from: d, to: to} }

// Write implements io.Writer.
func (c *compressed) Write(data []byte) (int, error) {
	switch {
	case c.zip != nil:
		return c.zip.Write(data)
	case c.began:
		return c.to.Write(data)
	case len(c.held)+len(data) < worthGzip:
		c.held = append(c.held, data...)
		return len(data), nil
	}
	c.began = true
	if c.from.places.try() {
		c.zip = c.from.get()
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

// finish writes what is left.
func (c *compressed) finish() error {
	switch {
	case c.zip != nil:
		return c.zip.Close()
	case len(c.held) > 0:
		_, err := c.to.Write(c.held)
		return err
	}
	return nil
}

// release gives the place back.
func (c *compressed) release() {
	if c.zip == nil {
		return
	}
	c.zip.Reset(nil)
	c.from.pool.Put(c.zip)
	c.from.places.free()
}

func (d *deflaters) get() *gzip.Writer {
	if z, ok := d.pool.Get().(*gzip.Writer); ok {
		return z
	}
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}

// wantsGzip says whether a client takes gzip (RFC 9110, 12.5.3).
func wantsGzip(h http.Header) bool {
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
