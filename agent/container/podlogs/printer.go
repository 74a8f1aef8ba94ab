package podlogs

import (
	"bufio"
	"errors"
	"io"
	"math"
	"time"
)

// Output is the destination of the content of a log.
type Output struct {
	// Stdout receives the container's standard output.
	Stdout io.Writer
	// Stderr receives the container's standard error. With nil that goes to
	// Stdout too, line by line in the order of the file.
	Stderr io.Writer
}

// stampFormat is the kubelet's. It always has nine digits, so that columns are
// aligned.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// maxHeld limits the bytes that are buffered of one stream's line while the
// other stream's unfinished line occupies the output.
const maxHeld = 64 << 10

// none is the value of open if no line is unfinished.
const none = streams

// errLimit stops the reading when the byte limit is reached.
var errLimit = errors.New("byte limit reached")

// printer joins the pieces of lines and writes them. On a shared output, the lines of the
// two streams are not mixed: while one stream's line is unfinished, the other stream's data
// is held. Held data is written when the line ends, when held is full, or when nothing more
// can be read for now. In the last two cases a newline ends the unfinished line early.
type printer struct {
	since      time.Time
	timestamps bool
	out        [streams]*bufio.Writer
	shared     bool

	line [streams]struct {
		mid  bool // a piece of the line was handled
		drop bool // the line is older than since
	}
	open  stream // whose unfinished line is on the shared output
	held  [streams][]byte
	stamp [maxHeader]byte
}

func newPrinter(o *Options, out Output) *printer {
	p := &printer{since: o.Since, timestamps: o.Timestamps, open: none, shared: out.Stderr == nil}
	left := int64(math.MaxInt64)
	if o.LimitBytes != nil {
		left = *o.LimitBytes
	}
	p.out[stdout] = bufio.NewWriter(limitWriter{out.Stdout, &left})
	p.out[stderr] = p.out[stdout]
	if !p.shared {
		p.out[stderr] = bufio.NewWriter(limitWriter{out.Stderr, &left})
	}
	return p
}

// piece writes a piece of a line. ends means that the line ends with it.
func (p *printer) piece(s stream, at time.Time, content []byte, ends bool) error {
	line := &p.line[s]
	begins := !line.mid
	line.mid = !ends
	if begins {
		line.drop = at.Before(p.since)
	}
	if line.drop {
		return nil
	}
	if begins && p.timestamps {
		stamp := append(at.UTC().AppendFormat(p.stamp[:0], stampFormat), ' ')
		if err := p.write(s, stamp); err != nil {
			return err
		}
	}
	if err := p.write(s, content); err != nil {
		return err
	}
	if !ends {
		return nil
	}
	return p.end(s)
}

// write writes a part of s's line, or holds it.
func (p *printer) write(s stream, data []byte) error {
	if p.shared && p.open != s && p.open != none {
		if len(p.held[s])+len(data) <= maxHeld {
			p.held[s] = append(p.held[s], data...)
			return nil
		}
		if err := p.interrupt(); err != nil {
			return err
		}
	}
	p.open = s
	_, err := p.out[s].Write(data)
	return err
}

// end ends s's line and writes the held data of the other stream.
func (p *printer) end(s stream) error {
	if err := p.write(s, newline); err != nil {
		return err
	}
	if p.open != s || !p.shared {
		return nil
	}
	return p.release()
}

// release writes held data to the shared output, which must be at the start of
// a line.
func (p *printer) release() error {
	p.open = none
	for s := range p.held {
		if len(p.held[s]) == 0 {
			continue
		}
		if _, err := p.out[s].Write(p.held[s]); err != nil {
			return err
		}
		p.held[s] = p.held[s][:0]
		if p.line[s].mid {
			p.open = stream(s)
		}
	}
	return nil
}

// interrupt ends the unfinished line early, so that the other stream's data can
// be written.
func (p *printer) interrupt() error {
	if _, err := p.out[p.open].Write(newline); err != nil {
		return err
	}
	return p.release()
}

// flush writes all held and buffered data. It is called at the end of the log,
// and when following before each wait.
func (p *printer) flush() error {
	if p.shared && len(p.held[stdout])+len(p.held[stderr]) > 0 {
		if err := p.interrupt(); err != nil {
			return err
		}
	}
	if err := p.out[stdout].Flush(); err != nil || p.shared {
		return err
	}
	return p.out[stderr].Flush()
}

// endUnfinished ends unfinished lines with a newline, unless that was done early. Their
// file is complete, and the next one begins on a new line.
func (p *printer) endUnfinished() error {
	for s := range p.line {
		mid := p.line[s].mid && !p.line[s].drop
		p.line[s].mid, p.line[s].drop = false, false
		if mid && (!p.shared || p.open == stream(s) || len(p.held[s]) > 0) {
			if err := p.end(stream(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

var newline = []byte{'\n'}

// limitWriter fails with errLimit after *left bytes. Two writers may share left.
type limitWriter struct {
	w    io.Writer
	left *int64
}

func (l limitWriter) Write(b []byte) (int, error) {
	n, err := l.w.Write(b[:min(int64(len(b)), *l.left)])
	*l.left -= int64(n)
	if err == nil && *l.left == 0 {
		err = errLimit
	}
	return n, err
}
