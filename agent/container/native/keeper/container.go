package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// Files of a container, in its directory.
const (
	fileRecord = "record.json"
	fileOut    = "out"
	fileErr    = "err"
	fileIn     = "in"
	filePID    = "pid"
	fileLog    = "log" // of the OCI runtime program
)

// fileConsole begins the names of the sockets for terminals, in the keeper's directory.
const fileConsole = "tty"

// maxRecord bounds a record in bytes.
const maxRecord = 16 << 10

// container is a container of the keeper. Its record on the tmpfs has the same state.
type container struct {
	dir string
	log logFile

	mu      sync.Mutex
	state   Container
	streams []*stream
	open    int // streams that have not ended
	// stdin is the descriptor of the keeper for the standard input, -1 if it is closed or
	// there is none. While it is open, the container's input does not end.
	stdin  int
	master int           // the terminal's, also read by a stream; -1 if there is none
	ended  chan struct{} // closed when the last stream has ended
}

func newContainer(dir string, state Container) *container {
	return &container{
		dir: dir, log: logFile{path: state.LogPath, fd: -1}, state: state, stdin: -1, master: -1, ended: make(chan struct{}),
	}
}

// snapshot returns the present state.
func (c *container) snapshot() Container {
	c.mu.Lock()
	state := c.state
	c.mu.Unlock()
	state.Dropped += c.log.lost()
	return state
}

// set changes the state and writes the record. The caller holds no lock. The record is first:
// as soon as the state is that of a container that has exited, a client may acknowledge it,
// which removes the directory. A record that cannot be written costs the next keeper what it
// has; the state changes nevertheless.
func (c *container) set(change func(*Container)) error {
	state := c.snapshot()
	change(&state)
	err := saveRecord(c.dir, state)
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
	return err
}

func saveRecord(dir string, state Container) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, fileRecord), data, 0o600); err != nil {
		return fmt.Errorf("write record of container %s: %w", state.ID, err)
	}
	return nil
}

// read adds a stream whose descriptor it owns, and begins to read it.
func (c *container) read(o *outputs, name string, fd int) error {
	s := &stream{c: c, fd: fd, entries: entries{stream: name}}
	return c.resume(o, s)
}

func (c *container) resume(o *outputs, s *stream) error {
	c.mu.Lock()
	c.streams = append(c.streams, s)
	c.open++
	c.mu.Unlock()
	if err := o.add(s); err != nil {
		s.end()
		return err
	}
	return nil
}

// streamEnded counts the end of a stream.
func (c *container) streamEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open--; c.open == 0 {
		close(c.ended)
	}
}

// stream returns the stream of a name, or nil.
func (c *container) stream(name string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		if s.entries.stream == name {
			return s
		}
	}
	return nil
}

// closeStdin ends the container's standard input, unless a client has it open.
func (c *container) closeStdin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdin >= 0 {
		_ = unix.Close(c.stdin)
		c.stdin = -1
	}
}

// input returns a descriptor of the terminal, or else of the standard input, which the caller
// closes. It returns -1 if the container has none.
func (c *container) input() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := c.master
	if fd < 0 {
		fd = c.stdin
	}
	if fd < 0 {
		return -1, nil
	}
	out, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate input of container: %w", err)
	}
	return out, nil
}

func (c *container) closeMaster() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master >= 0 {
		_ = unix.Close(c.master)
		c.master = -1
	}
}

// close closes and removes everything of the container.
func (c *container) close() error {
	c.mu.Lock()
	streams := c.streams
	c.mu.Unlock()
	for _, s := range streams {
		s.end()
	}
	c.closeStdin()
	c.closeMaster()
	c.log.close()
	return os.RemoveAll(c.dir)
}

// readRecord reads the record in the directory of a container.
func readRecord(dir string) (Container, error) {
	var state Container
	data, err := atomicfile.Read(filepath.Join(dir, fileRecord), maxRecord)
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return state, fmt.Errorf("decode record: %w", err)
	}
	if state.ID != filepath.Base(dir) {
		return state, fmt.Errorf("the record is of container %q", state.ID)
	}
	return state, nil
}

// makeFIFO makes a FIFO, and opens it for the keeper and for the container. The container
// has it open for reading and writing, so that it always has a reader.
func makeFIFO(path string) (reader, writer int, err error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return -1, -1, fmt.Errorf("make FIFO %q: %w", path, err)
	}
	if reader, err = openFIFO(path); err != nil {
		return -1, -1, err
	}
	if writer, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err != nil {
		_ = unix.Close(reader)
		return -1, -1, fmt.Errorf("open FIFO %q: %w", path, err)
	}
	return reader, writer, nil
}

// openFIFO opens a FIFO for reading without waiting for a writer.
func openFIFO(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("open FIFO %q: %w", path, err)
	}
	return fd, nil
}

// openStdin opens the standard input of a container for the keeper: for reading as well, so
// that it does not wait for the container.
func openStdin(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("open FIFO %q: %w", path, err)
	}
	return fd, nil
}
