package podlogs

import (
	"bytes"
	"time"
)

// stream is the output of the container that a line comes from.
type stream uint8

const (
	stdout stream = iota
	stderr
	streams // the number of streams
)

// header is the part of a line of the file before its content:
//
//	2026-01-02T03:04:05.123456789Z stdout F content
//
// The third word is a colon-separated list of tags. The first is P (partial:
// the line continues in the next one of the same stream) or F (full: it ends
// here). See pkg/kubelet/kuberuntime/logs and the design of the CRI log format.
type header struct {
	at      time.Time
	stream  stream
	partial bool
}

// maxHeader is an upper bound of the size in bytes of a valid header.
const maxHeader = 128

// parseHeader splits the beginning of a line into its header and the content. It skips
// leading zero bytes: a power cut leaves them in place of a lost line, and the next record
// follows on the same line. ok is false if the format is invalid.
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
	h.partial = string(first) == "P"
	if !h.partial && string(first) != "F" {
		return h, nil, false
	}
	var err error
	h.at, err = time.Parse(time.RFC3339Nano, string(stamp))
	return h, content, err == nil
}

var (
	space = []byte{' '}
	colon = []byte{':'}
)
