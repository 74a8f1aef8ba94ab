package guest

import (
	"io"
	"os"
	"sync/atomic"
	"time"
)

// A finished program's children may still hold its output, such as a daemon
// that it started. What the program itself wrote lies in the pipe by then and
// is read without a wait; so output ends when nothing came for outputGrace, or
// after outputLimit.
const (
	outputGrace = 500 * time.Millisecond
	outputLimit = 30 * time.Second
)

// drain copies one output of a program.
type drain struct {
	from *os.File
	to   io.Writer
	end  atomic.Pointer[time.Time] // last moment to read, monotonic; nil: the program runs
}

// run copies until the output ends. What cannot be written is dropped, so that
// the program never blocks.
func (d *drain) run() {
	defer d.from.Close()
	buf := make([]byte, 32<<10)
	broken := false
	for {
		n, err := d.from.Read(buf)
		if n > 0 && !broken {
			_, werr := d.to.Write(buf[:n])
			broken = werr != nil
		}
		if err != nil {
			return
		}
		if end := d.end.Load(); end != nil {
			d.limit(*end)
		}
	}
}

// finish must be called when the program has ended.
func (d *drain) finish() {
	end := time.Now().Add(outputLimit)
	d.end.Store(&end)
	d.limit(end)
}

func (d *drain) limit(end time.Time) {
	at := time.Now().Add(outputGrace)
	if end.Before(at) {
		at = end
	}
	_ = d.from.SetReadDeadline(at) // a closed pipe has ended anyway
}
