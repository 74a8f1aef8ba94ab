package remotecommand

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The SPDY/3 frames that the client uses. It skips all others.
const (
	frameSynStream = 1
	frameSynReply  = 2
	frameRstStream = 3
	framePing      = 6
	frameGoAway    = 7
)

const (
	version   = 3
	flagFin   = 1
	frameHead = 8 // bytes of a frame header
	// bufferSize limits a single read or write, in bytes.
	bufferSize = 16 << 10
)

// frame is a frame header, with the first word of a control frame's payload.
type frame struct {
	control bool
	kind    uint16 // of a control frame
	stream  uint32 // of data; the first word of a control frame
	fin     bool
	left    int // unread bytes of the frame
}

var errVersion = errors.New("server does not speak SPDY/3")

// readFrame reads a frame header, and the first word of the control frames that have a
// stream or ping ID.
func readFrame(in *bufio.Reader) (frame, error) {
	head, err := in.Peek(frameHead) // without an allocation
	if err != nil {
		return frame{}, err
	}
	first, second := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	_, _ = in.Discard(frameHead)
	f := frame{fin: second>>24&flagFin != 0, left: int(second & 0xffffff)}
	if first>>31 == 0 {
		f.stream = first
		return f, nil
	}
	if first>>16&0x7fff != version {
		return frame{}, errVersion
	}
	f.control, f.kind = true, uint16(first)
	switch f.kind {
	case frameSynReply, frameRstStream, framePing:
		if f.left < 4 {
			return frame{}, fmt.Errorf("invalid frame from server: type %d with %d bytes", f.kind, f.left)
		}
		word, err := in.Peek(4)
		if err != nil {
			return frame{}, unfinished(err)
		}
		f.stream = binary.BigEndian.Uint32(word)
		_, _ = in.Discard(4)
		f.left -= 4
	}
	return f, nil
}

// unfinished returns io.ErrUnexpectedEOF for io.EOF, which occurred within a frame.
func unfinished(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeError marks the error of a writer, to distinguish it from a reader's error.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// pass writes the remaining n bytes of a frame to w, without a copy. With a nil w it
// skips them.
func pass(in *bufio.Reader, w io.Writer, n int) error {
	for n > 0 {
		if _, err := in.Peek(1); err != nil { // fills the buffer
			return unfinished(err)
		}
		ahead, _ := in.Peek(min(n, in.Buffered())) // cannot fail
		if w != nil {
			if _, err := w.Write(ahead); err != nil {
				return writeError{err}
			}
		}
		n -= len(ahead)
		_, _ = in.Discard(len(ahead))
	}
	return nil
}

// dataFrame writes the header of a data frame into the first frameHead bytes of b; the
// data follows them.
func dataFrame(b []byte, stream uint32, fin bool) []byte {
	binary.BigEndian.PutUint32(b, stream)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-frameHead))
	if fin {
		b[4] = flagFin
	}
	return b
}

// controlFrame appends the header of a control frame to b.
func controlFrame(b []byte, kind uint16, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, 1<<31|version<<16|uint32(kind))
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

func pong(id uint32) []byte {
	return binary.BigEndian.AppendUint32(controlFrame(nil, framePing, 4), id)
}

// zlibHead is the header of the zlib stream of all headers of a connection: deflate
// with a window of 32 KiB, and the checksum of SPDY's dictionary, which is not used.
var zlibHead = []byte{0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2}

// synStream returns a frame that opens a stream with the header streamtype. The headers
// are a stored deflate block (RFC 1951, section 3.2.4), followed by an empty one, which
// flushes the reader's decompressor.
func synStream(stream uint32, kind string, first bool) []byte {
	const name = "streamtype"
	headers := binary.BigEndian.AppendUint32(nil, 1)
	for _, word := range []string{name, kind} {
		headers = binary.BigEndian.AppendUint32(headers, uint32(len(word)))
		headers = append(headers, word...)
	}
	var packed []byte
	if first {
		packed = append(packed, zlibHead...)
	}
	n := uint16(len(headers))
	packed = append(packed, 0)
	packed = binary.LittleEndian.AppendUint16(packed, n)
	packed = binary.LittleEndian.AppendUint16(packed, ^n)
	packed = append(packed, headers...)
	packed = append(packed, 0, 0, 0, 0xff, 0xff)

	b := controlFrame(nil, frameSynStream, 10+len(packed))
	b = binary.BigEndian.AppendUint32(b, stream)
	b = append(b, 0, 0, 0, 0, 0, 0) // no associated stream, no priority
	return append(b, packed...)
}
