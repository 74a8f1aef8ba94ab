package metrics

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind is the type of a metric family.
type Kind string

// The types that a Stream writes.
const (
	KindCounter   Kind = "counter"
	KindGauge     Kind = "gauge"
	KindHistogram Kind = "histogram"
)

// streamBuffer is the size of one write in bytes.
const streamBuffer = 8192

// Stream writes samples without storing them: the thousands of samples of a node's
// containers would take some megabytes. Samples belong to the family of the last call
// of Family. The caller must write all samples of a family together, and each sample
// once. A Stream is not safe for concurrent use. After an error it writes nothing
// more, and Flush returns the error.
type Stream struct {
	w             io.Writer
	buf           []byte
	err           error
	kind          Kind
	name          string
	help          string
	headerWritten bool // the family's header is written

	scratch Histogram // copy of a histogram that is in use
}

// NewStream returns a Stream that writes to w in pieces of about 8 KB.
func NewStream(w io.Writer) *Stream {
	return &Stream{w: w, buf: make([]byte, 0, streamBuffer+1024)}
}

// Family begins a metric family. A family without samples is not written.
func (s *Stream) Family(kind Kind, name, help string) {
	s.kind, s.name, s.help, s.headerWritten = kind, name, help, false
}

// Sample adds a sample without a timestamp. Each element of labels is a result of
// AppendLabel, so that labels of many samples are escaped only once. Empty
// elements are ignored.
func (s *Stream) Sample(value float64, labels ...[]byte) { s.sample(value, nil, labels) }

// SampleAt adds a sample with a timestamp, in milliseconds since 1970.
func (s *Stream) SampleAt(at int64, value float64, labels ...[]byte) {
	s.header()
	s.series("", nil, labels)
	s.number(value)
	s.buf = append(s.buf, ' ')
	s.buf = strconv.AppendInt(s.buf, at, 10)
	s.end()
}

// Histogram adds the samples of h.
func (s *Stream) Histogram(h *Histogram, labels ...[]byte) { s.histogram(h, nil, labels) }

func (s *Stream) sample(value float64, own []byte, labels [][]byte) {
	s.header()
	s.series("", own, labels)
	s.number(value)
	s.end()
}

func (s *Stream) histogram(h *Histogram, own []byte, labels [][]byte) {
	s.header()
	limits := h.limits()
	var count uint64
	for i := range len(limits) + 1 {
		if i < len(h.counts) { // there are none before the first duration
			count += h.counts[i]
		}
		s.series("_bucket", own, labels)
		// Replace the closing brace: le follows the other labels.
		s.buf = s.buf[:len(s.buf)-1]
		if s.buf[len(s.buf)-1] == '}' {
			s.buf[len(s.buf)-1] = ','
		} else {
			s.buf = append(s.buf, '{')
		}
		s.buf = append(s.buf, `le="`...)
		if i < len(limits) {
			s.number(limits[i])
		} else {
			s.buf = append(s.buf, "+Inf"...)
		}
		s.buf = append(s.buf, `"} `...)
		s.number(float64(count))
		s.end()
	}
	s.series("_sum", own, labels)
	s.number(h.sum)
	s.end()
	s.series("_count", own, labels)
	s.number(float64(count))
	s.end()
}

// Flush writes the rest of the buffer and returns the first error of all writes.
func (s *Stream) Flush() error {
	if s.err == nil && len(s.buf) > 0 {
		if _, err := s.w.Write(s.buf); err != nil {
			s.err = fmt.Errorf("write metric %s: %w", s.name, err)
		}
	}
	s.buf = s.buf[:0]
	return s.err
}

func (s *Stream) header() {
	if s.headerWritten {
		return
	}
	s.headerWritten = true
	s.buf = append(append(append(s.buf, "# HELP "...), s.name...), ' ')
	s.buf = appendEscaped(s.buf, s.help, false)
	s.buf = append(append(append(s.buf, "\n# TYPE "...), s.name...), ' ')
	s.buf = append(append(s.buf, s.kind...), '\n')
}

// series writes the name and the labels of a sample. own precedes labels.
func (s *Stream) series(suffix string, own []byte, labels [][]byte) {
	s.buf = append(append(s.buf, s.name...), suffix...)
	next := byte('{')
	if len(own) > 0 {
		s.buf = append(append(s.buf, next), own...)
		next = ','
	}
	for _, l := range labels {
		if len(l) > 0 {
			s.buf = append(append(s.buf, next), l...)
			next = ','
		}
	}
	if next == ',' {
		s.buf = append(s.buf, '}')
	}
	s.buf = append(s.buf, ' ')
}

// number writes the value so that a parser reads the same value. Most values are
// whole numbers, which are written without FormatFloat.
func (s *Stream) number(value float64) {
	switch {
	case value >= 0 && value < 1<<53 && value == math.Trunc(value):
		s.buf = strconv.AppendUint(s.buf, uint64(value), 10)
	case math.IsInf(value, 1):
		s.buf = append(s.buf, "+Inf"...)
	default:
		s.buf = strconv.AppendFloat(s.buf, value, 'g', -1, 64)
	}
}

func (s *Stream) end() {
	s.buf = append(s.buf, '\n')
	if len(s.buf) >= streamBuffer {
		_ = s.Flush() // stores the error
	}
}

// AppendLabel appends a label, in the exposition format, to the labels in dst. It
// replaces invalid UTF-8 in the value, because a scraper would reject the whole text.
func AppendLabel(dst []byte, name, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = append(append(dst, name...), '=', '"')
	return append(appendEscaped(dst, value, true), '"')
}

func appendEscaped(dst []byte, text string, quoted bool) []byte {
	for _, r := range text {
		switch {
		case r == '\\':
			dst = append(dst, '\\', '\\')
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '"' && quoted:
			dst = append(dst, '\\', '"')
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}
