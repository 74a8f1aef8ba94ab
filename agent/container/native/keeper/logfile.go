package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The log format of CRI: time, stream, tag and content, separated by spaces. A line that is
// longer than maxLine is split; all parts but the last have the tag P. A line without an end
// has it too (containerd's internal/cri/io/logger.go).
const (
	maxLine = 16 << 10
	// logMode is that of containerd and CRI-O.
	logMode = 0o640
)

// entries formats the output of one stream.
type entries struct {
	stream  string
	pending []byte // begin of a line whose end has not been read
}

var carriageReturn = []byte{'\r'}

// smallLine is the capacity in bytes that pending keeps when it becomes empty.
const smallLine = 256

// format appends the entries that data completes to out, and passes out to flush whenever it
// has flushSize bytes or more. It returns the rest of out.
func (e *entries) format(out, data []byte, now time.Time, flush func([]byte)) []byte {
	for len(data) > 0 {
		line, rest, complete := data, []byte(nil), false
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, rest, complete = data[:i], data[i+1:], true
		}
		data = rest
		for rest := len(e.pending) + len(line) - maxLine; rest > 0; rest = len(e.pending) + len(line) - maxLine {
			if rest == 1 && (bytes.HasSuffix(line, carriageReturn) || len(line) == 0 && bytes.HasSuffix(e.pending, carriageReturn)) {
				break // it may belong to the end of the line
			}
			room := max(maxLine-len(e.pending), 0)
			more := bytes.Clone(e.pending[min(len(e.pending), maxLine):])
			e.pending = e.pending[:min(len(e.pending), maxLine)]
			out = e.append(out, now, 'P', line[:room])
			e.pending = append(e.pending, more...)
			line = line[room:]
			if len(out) >= flushSize {
				flush(out)
				out = out[:0]
			}
		}
		if !complete {
			e.pending = append(e.pending, line...)
			break
		}
		out = e.append(out, now, 'F', line)
		if len(out) >= flushSize {
			flush(out)
			out = out[:0]
		}
	}
	return out
}

// end appends the entry of a last line without an end.
func (e *entries) end(out []byte, now time.Time) []byte {
	if len(e.pending) == 0 {
		return out
	}
	return e.append(out, now, 'P', nil)
}

// append appends an entry of pending and line, and empties pending. A carriage return before
// the end of the line is dropped.
func (e *entries) append(out []byte, now time.Time, tag byte, line []byte) []byte {
	out = now.AppendFormat(out, time.RFC3339Nano)
	out = append(out, ' ')
	out = append(out, e.stream...)
	out = append(out, ' ', tag, ' ')
	content := len(out)
	out = append(out, e.pending...)
	out = append(out, line...)
	if tag == 'F' && len(out) > content && out[len(out)-1] == '\r' {
		out = out[:len(out)-1]
	}
	if e.pending = e.pending[:0]; cap(e.pending) > smallLine {
		e.pending = nil
	}
	return append(out, '\n')
}

// logFile is the log of one container. A write that fails drops its bytes: a full disk must
// not stop the container.
type logFile struct {
	mu      sync.Mutex
	path    string // empty: the output is dropped
	fd      int    // -1 if it is not open
	torn    bool   // the last entry in the file has no end
	dropped uint64
}

// open opens the file for appending. It creates missing directories with mode 0755.
func (l *logFile) open() error {
	if l.path == "" {
		return nil
	}
	fd, err := openLog(l.path)
	if err != nil {
		return err
	}
	l.fd, l.torn = fd, isTorn(fd)
	return nil
}

// isTorn reports whether a file has a last line without an end, as after the death of a
// keeper that was writing it.
func isTorn(fd int) bool {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil || info.Size == 0 {
		return false
	}
	last := make([]byte, 1)
	n, err := unix.Pread(fd, last, info.Size-1)
	return err == nil && n == 1 && last[0] != '\n'
}

func openLog(path string) (int, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return -1, fmt.Errorf("create directory of log: %w", err)
	}
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	fd, err := unix.Open(path, flags, logMode)
	if err != nil {
		return -1, fmt.Errorf("open log %q: %w", path, err)
	}
	return fd, nil
}

// reopen continues the log in the file that is now at the path.
func (l *logFile) reopen() error {
	if l.path == "" {
		return nil
	}
	fd, err := openLog(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = unix.Close(l.fd) // a descriptor without buffered data
	l.fd, l.torn = fd, isTorn(fd)
	return nil
}

// write appends entries.
func (l *logFile) write(data []byte) {
	if len(data) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return
	}
	if l.torn {
		if n, err := writeAll(l.fd, []byte{'\n'}); n == 0 || err != nil {
			l.dropped += uint64(len(data))
			return
		}
		l.torn = false
	}
	n, err := writeAll(l.fd, data)
	if err != nil {
		l.dropped += uint64(len(data) - n)
		l.torn = n > 0 && data[n-1] != '\n'
	}
}

// writeAll returns how many bytes it has written before an error.
func writeAll(fd int, data []byte) (n int, err error) {
	for n < len(data) {
		m, err := unix.Write(fd, data[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
}

func (l *logFile) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}
