package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrOtherAgent means that another agent is running on this node.
var ErrOtherAgent = errors.New("another agent is running on this node")

// Claim is an agent's exclusive lock of a node. It ends with Release or with the process.
//
// It is a lock (flock(2)) on a file next to the socket. The kernel releases it when the
// process ends. A PID file or the socket itself would remain after an agent is killed.
type Claim struct{ lock *os.File }

// ClaimNode locks the node for this agent. It returns ErrOtherAgent if another
// agent has the lock. Any other error means that it is unknown whether another
// agent is running. socketPath is that of Config. An agent claims the node before it
// writes anything else or changes any process, so that it cannot disturb another agent.
func ClaimNode(socketPath string) (*Claim, error) {
	path := socketPath + ".lock"
	f, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("lock node: %w; without the lock, two agents could start every pod twice: "+
			"make %q writable (usually a tmpfs at /run), or set socketPath of TinyletConfiguration to a path in a writable directory", err, filepath.Dir(path))
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
	return nil, fmt.Errorf("lock node: lock %q: %w; set socketPath of TinyletConfiguration to a path on a local file system, such as a tmpfs", path, err)
}

func openLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// Release releases the lock. It does not remove the file: that would race with
// an agent that has just opened it. Further calls do nothing.
func (c *Claim) Release() {
	_ = c.lock.Close() // nothing was written
}
