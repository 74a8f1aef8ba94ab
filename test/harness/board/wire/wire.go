// Package wire owns the framing between the test host and the control program
// in a simulated board: many commands and file transfers share one byte stream.
//
// Every operation has an id chosen by the host. The host opens it with an
// Exec, Put, Get or Dial frame; data for the operation's input follows in Input
// and InputEnd frames. The guest answers with Output and ErrOutput frames and ends
// the operation with exactly one Done frame. The guest's first frame after its
// start is Hello, with id 0.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kind says what a frame carries.
type Kind byte

// Frame kinds. Exec to Cancel go to the guest, Hello to Done to the host.
const (
	Exec     Kind = 1  // JSON Command: run a program
	Put      Kind = 2  // JSON File: write a file from the input that follows
	Get      Kind = 3  // JSON File: read a file as output
	Input    Kind = 4  // bytes for the operation's input
	InputEnd Kind = 5  // end of the operation's input
	Cancel   Kind = 6  // stop the operation; a program gets SIGKILL
	Dial     Kind = 7  // JSON File: connect to a Unix socket
	Hello    Kind = 16 // JSON Greeting
	Output   Kind = 17 // bytes of standard output, of the file, or from the socket
	ErrOut   Kind = 18 // bytes of standard error
	Done     Kind = 19 // JSON Result
)

// MaxPayload is the largest payload in bytes that a frame may carry.
const MaxPayload = 64 << 10

const (
	headerSize = 12
	magic0     = 'T'
	magic1     = 'B'
)

// ErrFraming reports that the stream is not made of frames.
var ErrFraming = errors.New("bad frame")

// Frame is one message.
type Frame struct {
	Kind    Kind
	ID      uint32
	Payload []byte
}

// Command is the payload of an Exec frame.
type Command struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

// File is the payload of a Put, Get or Dial frame. Mode holds permission bits.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode,omitempty"`
}

// Greeting is the payload of a Hello frame.
type Greeting struct {
	BootID string    `json:"bootID"`
	Now    time.Time `json:"now"`
}

// Result is the payload of a Done frame. Exit is a program's exit code, or
// 128 plus the signal that ended it. Error is set if the operation itself
// could not be done.
type Result struct {
	Exit  int    `json:"exit"`
	Error string `json:"error,omitempty"`
}

// Write sends one frame with a single call of w.Write. The payload must not be
// larger than MaxPayload. It does not serialise concurrent callers.
func Write(w io.Writer, f Frame) error {
	if len(f.Payload) > MaxPayload {
		return fmt.Errorf("write frame of %d bytes: %w", len(f.Payload), ErrFraming)
	}
	b := make([]byte, headerSize, headerSize+len(f.Payload))
	b[0], b[1], b[2] = magic0, magic1, byte(f.Kind)
	binary.BigEndian.PutUint32(b[4:], f.ID)
	binary.BigEndian.PutUint32(b[8:], uint32(len(f.Payload)))
	if _, err := w.Write(append(b, f.Payload...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// Read blocks for the next frame. It returns io.EOF at a clean end between
// frames, io.ErrUnexpectedEOF within one, and ErrFraming if the bytes are not
// a frame; the stream is of no more use after any error.
func Read(r io.Reader) (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	size := binary.BigEndian.Uint32(h[8:])
	if h[0] != magic0 || h[1] != magic1 || h[3] != 0 || size > MaxPayload {
		return Frame{}, fmt.Errorf("header % x: %w", h, ErrFraming)
	}
	f := Frame{Kind: Kind(h[2]), ID: binary.BigEndian.Uint32(h[4:])}
	if size > 0 {
		f.Payload = make([]byte, size)
		if _, err := io.ReadFull(r, f.Payload); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	return f, nil
}
