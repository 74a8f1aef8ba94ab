package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrOtherAgent says that another agent lives on this node.
var ErrOtherAgent = errors.New("another agent runs on this node")

// Claim is one agent's hold on a node. It ends with Release or with the
// process, however that ends.
//
// It is a lock on a file beside the socket: unlike a process ID or the socket
// itself, a lock cannot be left behind by an agent that was killed.
type Claim struct{ lock *os.File }

// ClaimNode makes this agent the only one on the node, or fails with
// ErrOtherAgent. Every other error means that it is unknown whether another
// agent runs. socketPath is that of Config; "" is DefaultSocketPath. An agent
// claims the node before it writes anything or changes any process, so that it
// cannot disturb the other one.
func ClaimNode(socketPath string) (*Claim, error) {
	if socketPath == "" {
		socketPath = DefaultSocketPath
	}
	path := socketPath + ".lock"
	f, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("claim the node: %w; without this lock two agents could start every pod twice: "+
			"make %q writable (it is usually on a tmpfs at /run), or set socketPath of TinyletConfiguration to a path in a folder that is", err, filepath.Dir(path))
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return &Claim{lock: f}, nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: it holds %q; stop it first (two agents would start every pod twice)", ErrOtherAgent, path)
	}
	return nil, fmt.Errorf("claim the node: lock %q: %w; set socketPath of TinyletConfiguration to a path on a local file system, such as a tmpfs", path, err)
}

func openLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// Release ends the claim. The file stays: removing it would race with an
// agent that has just opened it. Releasing again does nothing.
func (c *Claim) Release() {
	_ = c.lock.Close() // nothing was written
}
