// Package guest serves a simulated board to the test host over one byte
// stream: it runs programs and moves files. It keeps no state between streams.
package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tinylet/tinylet/test/harness/board/wire"
)

// server answers the frames of one stream. Each operation runs in a goroutine
// of its own; serve waits for all of them.
type server struct {
	rw  io.ReadWriter
	out sync.Mutex // one frame at a time

	mu  sync.Mutex
	ops map[uint32]*op
}

// op is a running operation as the reader of the stream sees it.
type op struct {
	input  *inbox
	cancel chan struct{}
	once   sync.Once
}

// Serve greets the host and blocks until the stream ends; it returns why that
// was. What still runs then is killed.
func Serve(rw io.ReadWriter) error {
	s := &server{rw: rw, ops: map[uint32]*op{}}
	return s.serve()
}

func (s *server) serve() error {
	if err := s.send(wire.Hello, 0, wire.Greeting{BootID: bootID(), Now: time.Now()}); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.cancelAll()
	for {
		f, err := wire.Read(s.rw)
		if err != nil {
			return err
		}
		switch f.Kind {
		case wire.Exec, wire.Put, wire.Get, wire.Dial:
			o := s.open(f.ID)
			wg.Go(func() { s.operate(f, o) })
		case wire.Input:
			s.with(f.ID, func(o *op) { o.input.add(f.Payload) })
		case wire.InputEnd:
			s.with(f.ID, func(o *op) { o.input.end() })
		case wire.Cancel:
			s.with(f.ID, (*op).stop)
		default: // a newer host's wish; it gets no answer
		}
	}
}

func (s *server) open(id uint32) *op {
	o := &op{input: newInbox(), cancel: make(chan struct{})}
	s.mu.Lock()
	s.ops[id] = o
	s.mu.Unlock()
	return o
}

func (s *server) with(id uint32, f func(*op)) {
	s.mu.Lock()
	o := s.ops[id]
	s.mu.Unlock()
	if o != nil {
		f(o)
	}
}

func (s *server) cancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.ops {
		o.stop()
	}
}

func (o *op) stop() {
	o.once.Do(func() { close(o.cancel) })
	o.input.end()
}

// operate does what the opening frame f asks and reports its end.
func (s *server) operate(f wire.Frame, o *op) {
	var res wire.Result
	var err error
	switch f.Kind {
	case wire.Exec:
		var c wire.Command
		if err = json.Unmarshal(f.Payload, &c); err == nil {
			res.Exit, err = execute(c, o, s.writer(f.ID, wire.Output), s.writer(f.ID, wire.ErrOut))
		}
	case wire.Put:
		var file wire.File
		if err = json.Unmarshal(f.Payload, &file); err == nil {
			err = put(file, o)
		}
	case wire.Get:
		var file wire.File
		if err = json.Unmarshal(f.Payload, &file); err == nil {
			err = get(file, o, s.writer(f.ID, wire.Output))
		}
	case wire.Dial:
		var file wire.File
		if err = json.Unmarshal(f.Payload, &file); err == nil {
			err = dial(file, o, s.writer(f.ID, wire.Output))
		}
	default:
		err = fmt.Errorf("frame of kind %d opens no operation", f.Kind)
	}
	if err != nil {
		res.Error = err.Error()
	}
	s.mu.Lock()
	delete(s.ops, f.ID)
	s.mu.Unlock()
	// A lost stream ends serve, which has the error already.
	_ = s.send(wire.Done, f.ID, res)
}

func (s *server) send(k wire.Kind, id uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return s.write(wire.Frame{Kind: k, ID: id, Payload: b})
}

func (s *server) write(f wire.Frame) error {
	s.out.Lock()
	defer s.out.Unlock()
	return wire.Write(s.rw, f)
}

func (s *server) writer(id uint32, k wire.Kind) io.Writer {
	return &frameWriter{s: s, id: id, kind: k}
}

// frameWriter sends what is written to it as frames of one kind.
type frameWriter struct {
	s    *server
	id   uint32
	kind wire.Kind
}

func (w *frameWriter) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part := p[n:min(len(p), n+wire.MaxPayload)]
		if err := w.s.write(wire.Frame{Kind: w.kind, ID: w.id, Payload: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// inbox is an unbounded pipe, so that one slow operation does not hold up the
// stream that all of them share.
type inbox struct {
	mu    sync.Mutex
	ready *sync.Cond
	buf   bytes.Buffer
	ended bool
}

func newInbox() *inbox {
	b := &inbox{}
	b.ready = sync.NewCond(&b.mu)
	return b
}

func (b *inbox) add(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.buf.Write(p)
		b.ready.Broadcast()
	}
}

func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.ready.Broadcast()
}

// Read blocks for input; it returns io.EOF after the end.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.buf.Len() == 0 && !b.ended {
		b.ready.Wait()
	}
	if b.buf.Len() == 0 {
		return 0, io.EOF
	}
	return b.buf.Read(p)
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
