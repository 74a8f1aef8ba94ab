package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/tinylet/tinylet/test/board/wire"
)

// ErrGone reports that the board ended while an operation was under way.
var ErrGone = errors.New("board is gone")

// control is the host's end of the control stream.
type control struct {
	conn net.Conn
	out  sync.Mutex // one frame at a time

	mu    sync.Mutex
	calls map[uint32]*call
	last  uint32
	gone  error
	hello chan wire.Greeting // has the first greeting
}

// call is one operation under way.
type call struct {
	queue *queue
}

func newControl() *control {
	return &control{calls: map[uint32]*call{}, hello: make(chan wire.Greeting, 1)}
}

// run reads the stream until it ends, then fails what is under way.
func (c *control) run(conn net.Conn) {
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	for {
		f, err := wire.Read(conn)
		if err != nil {
			c.fail(fmt.Errorf("%w: control stream: %w", ErrGone, err))
			return
		}
		if f.Kind == wire.Hello {
			c.greet(f.Payload)
			continue
		}
		c.mu.Lock()
		k := c.calls[f.ID]
		if f.Kind == wire.Done {
			delete(c.calls, f.ID)
		}
		c.mu.Unlock()
		if k != nil {
			k.queue.add(f)
		}
	}
}

func (c *control) greet(payload []byte) {
	var g wire.Greeting
	if err := json.Unmarshal(payload, &g); err != nil {
		c.fail(fmt.Errorf("%w: greeting: %w", ErrGone, err))
		return
	}
	select {
	case c.hello <- g:
	default: // the control program was started again
	}
}

func (c *control) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = err
	}
	for id, k := range c.calls {
		k.queue.end(c.gone)
		delete(c.calls, id)
	}
}

// open starts an operation.
func (c *control) open(k wire.Kind, v any) (uint32, *call, error) {
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
	id, call := c.last, &call{queue: newQueue()}
	c.calls[id] = call
	c.mu.Unlock()
	return id, call, c.send(wire.Frame{Kind: k, ID: id, Payload: b})
}

func (c *control) send(f wire.Frame) error {
	c.out.Lock()
	defer c.out.Unlock()
	if err := wire.Write(c.conn, f); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// feed sends an operation's input to its end.
func (c *control) feed(id uint32, r io.Reader) error {
	if r != nil {
		buf := make([]byte, wire.MaxPayload)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				if err := c.send(wire.Frame{Kind: wire.Input, ID: id, Payload: buf[:n]}); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errors.Join(fmt.Errorf("read input: %w", err), c.send(wire.Frame{Kind: wire.Cancel, ID: id}))
			}
		}
	}
	return c.send(wire.Frame{Kind: wire.InputEnd, ID: id})
}

// finish copies an operation's output until it is done. When ctx ends first
// the operation is cancelled and not waited for.
func (c *control) finish(ctx context.Context, id uint32, k *call, stdout, stderr io.Writer) (wire.Result, error) {
	stop := context.AfterFunc(ctx, func() { k.queue.end(context.Cause(ctx)) })
	defer stop()
	for {
		f, err := k.queue.next()
		if err != nil {
			if !errors.Is(err, ErrGone) {
				c.mu.Lock()
				delete(c.calls, id)
				c.mu.Unlock()
				err = errors.Join(err, c.send(wire.Frame{Kind: wire.Cancel, ID: id}))
			}
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
		}
		if err != nil {
			k.queue.end(fmt.Errorf("copy output: %w", err))
		}
	}
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
	q.frames = append(q.frames, f)
	q.ready.Broadcast()
}

func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.ready.Broadcast()
}

// next blocks for an answer. An error comes after the answers before it.
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
