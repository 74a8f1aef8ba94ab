package podlogs

import (
	"bytes"
	"time"
)

// stream is which output of the container a line comes from.
type stream uint8

const (
	stdout stream = iota
	stderr
	streams // how many there are
)

// header is what stands before the content of one line of the file:
//
//	2026-01-02T03:04:05.123456789Z stdout F content
//
// The third word is a list of tags with colons between, of which the first
// is P (the line goes on in the next one of the same stream) or F (it ends
// here); see pkg/kubelet/kuberuntime/logs and the design of the CRI log
// format.
type header struct {
	at      time.Time
	stream  stream
	partial bool
}

// maxHeader is more bytes than any valid header takes.
const maxHeader = 128

// parseHeader splits the beginning of a line into its header and the
// content. A power cut leaves zero bytes where a line was to be, followed on
// the same line by the next record, so zero bytes in front are passed over.
func parseHeader(line []byte) (h header, content []byte, ok bool) {
	line = bytes.TrimLeft(line, "\x00")
	stamp, rest, ok1 := bytes.Cut(line, space)
	name, rest, ok2 := bytes.Cut(rest, space)
	tags, content, _ := bytes.Cut(rest, space)
	if !ok1 || !ok2 || len(stamp) > maxHeader/2 {
		return h, nil, false
	}
	switch string(name) {
	case "stdout":
		h.stream = stdout
	case "stderr":
		h.stream = stderr
	default:
		return h, nil, false
	}
	first, _, _ := bytes.Cut(tags, colon)
	switch string(first) {
	case "P":
		h.partial = true
	case "F":
	default:
		return h, nil, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return h, nil, false
	}
	h.at = at
	return h, content, true
}

var (
	space = []byte{' '}
	colon = []byte{':'}
)
