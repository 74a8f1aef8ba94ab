package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tinylet/tinylet/test/harness/board/wire"
)

// ErrGone reports that the board ended while an operation was under way.
var ErrGone = errors.New("board is gone")

// control is the host's end of the control stream.
type control struct {
	out     chan wire.Frame // in the order of their operations
	cancels chan wire.Frame // overtake input that the board does not take
	ended   chan struct{}   // closed when the stream is gone

	mu    sync.Mutex
	calls map[uint32]*queue // answers of the operations under way
	last  uint32
	gone  error
	hello chan wire.Greeting // has the first greeting
}

func newControl() *control {
	return &control{
		out: make(chan wire.Frame), cancels: make(chan wire.Frame), ended: make(chan struct{}),
		calls: map[uint32]*queue{}, hello: make(chan wire.Greeting, 1),
	}
}

// run serves the stream until it ends, then fails what is under way. It closes
// conn.
func (c *control) run(conn io.ReadWriteCloser) {
	var writer sync.WaitGroup
	writer.Go(func() { c.write(conn) })
	err := c.read(conn)
	c.fail(fmt.Errorf("%w: control stream: %w", ErrGone, err))
	_ = conn.Close()
	writer.Wait()
}

func (c *control) read(r io.Reader) error {
	for {
		f, err := wire.Read(r)
		if err != nil {
			return err
		}
		if f.Kind == wire.Hello {
			if err := c.greet(f.Payload); err != nil {
				return err
			}
			continue
		}
		c.mu.Lock()
		q := c.calls[f.ID]
		if f.Kind == wire.Done {
			delete(c.calls, f.ID)
		}
		c.mu.Unlock()
		if q != nil {
			q.add(f)
		}
	}
}

// write sends frames until the stream is gone. The reader notices that too.
func (c *control) write(w io.Writer) {
	for {
		var f wire.Frame
		select {
		case f = <-c.cancels:
		case f = <-c.out:
		case <-c.ended:
			return
		}
		if wire.Write(w, f) != nil {
			<-c.ended
			return
		}
	}
}

func (c *control) greet(payload []byte) error {
	var g wire.Greeting
	if err := json.Unmarshal(payload, &g); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	select {
	case c.hello <- g:
	default: // the control program was started again
	}
	return nil
}

// fail ends the stream for its users, once.
func (c *control) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = err
	close(c.ended)
	for id, q := range c.calls {
		q.end(c.gone)
		delete(c.calls, id)
	}
}

// open starts an operation. The caller must call finish if there is no error.
func (c *control) open(ctx context.Context, k wire.Kind, v any) (uint32, *queue, error) {
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return 0, nil, fmt.Errorf("encode operation: %w", err)
	}
	c.mu.Lock()
	if c.gone != nil {
		c.mu.Unlock()
		return 0, nil, c.gone
	}
	c.last++
	id, q := c.last, newQueue()
	c.calls[id] = q
	c.mu.Unlock()
	if err := c.send(ctx, c.out, wire.Frame{Kind: k, ID: id, Payload: b}); err != nil {
		c.forget(id)
		return 0, nil, err
	}
	return id, q, nil
}

func (c *control) forget(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// send hands a frame to the writer. Without error the writer has it.
func (c *control) send(ctx context.Context, to chan<- wire.Frame, f wire.Frame) error {
	select {
	case to <- f:
		return nil
	case <-c.ended:
		return c.gone // not changed any more
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// feed sends an operation's input to its end.
func (c *control) feed(ctx context.Context, id uint32, r io.Reader) error {
	for r != nil {
		buf := make([]byte, wire.MaxPayload)
		n, err := r.Read(buf)
		if n > 0 {
			if err := c.send(ctx, c.out, wire.Frame{Kind: wire.Input, ID: id, Payload: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read input: %w", err)
		}
	}
	return c.send(ctx, c.out, wire.Frame{Kind: wire.InputEnd, ID: id})
}

// cancelTime bounds the wait for a board that takes nothing any more.
const cancelTime = 5 * time.Second

// finish copies an operation's output until it is done. When ctx ends first
// the operation is cancelled and not waited for.
func (c *control) finish(ctx context.Context, id uint32, q *queue, stdout, stderr io.Writer) (wire.Result, error) {
	stop := context.AfterFunc(ctx, func() { q.end(context.Cause(ctx)) })
	defer stop()
	for {
		f, err := q.next()
		if err != nil {
			c.cancel(ctx, id)
			return wire.Result{}, err
		}
		switch f.Kind {
		case wire.Output:
			_, err = stdout.Write(f.Payload)
		case wire.ErrOut:
			_, err = stderr.Write(f.Payload)
		case wire.Done:
			var res wire.Result
			if err := json.Unmarshal(f.Payload, &res); err != nil {
				return res, fmt.Errorf("read result: %w", err)
			}
			if res.Error != "" {
				return res, errors.New(res.Error)
			}
			return res, nil
		default:
			err = fmt.Errorf("frame of kind %d is no answer: %w", f.Kind, wire.ErrFraming)
		}
		if err != nil {
			q.end(fmt.Errorf("copy output: %w", err))
		}
	}
}

// cancel stops an operation whose answers nobody reads any more.
func (c *control) cancel(ctx context.Context, id uint32) {
	c.forget(id)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	_ = c.send(ctx, c.cancels, wire.Frame{Kind: wire.Cancel, ID: id}) // a lost board needs no word
}

// queue holds an operation's answers without bound, so that a slow reader of
// one does not hold up the others.
type queue struct {
	mu     sync.Mutex
	ready  *sync.Cond
	frames []wire.Frame
	err    error
}

func newQueue() *queue {
	q := &queue{}
	q.ready = sync.NewCond(&q.mu)
	return q
}

func (q *queue) add(f wire.Frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.frames = append(q.frames, f)
		q.ready.Broadcast()
	}
}

func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.ready.Broadcast()
}

// next blocks for an answer. An error comes after the answers before it; what
// is added later is dropped.
func (q *queue) next() (wire.Frame, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && q.err == nil {
		q.ready.Wait()
	}
	if len(q.frames) == 0 {
		return wire.Frame{}, q.err
	}
	f := q.frames[0]
	q.frames = q.frames[1:]
	return f, nil
}
