package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOtherAgent means that another agent is running on this node.
var ErrOtherAgent = errors.New("another agent is running on this node")

// Claim is an agent's exclusive lock of a node. It ends with Release or with the process.
//
// It is a lock (flock(2)) on a file next to the socket. The kernel releases it when the
// process ends. A PID file or the socket itself would remain after an agent is killed.
type Claim struct{ lock *os.File }

// DeviceManagerSocket is where each kubelet listens for device plugins, with any root
// directory (staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/constants.go).
const DeviceManagerSocket = "/var/lib/kubelet/device-plugins/kubelet.sock"

// KubeletRuns reports whether a kubelet listens on the socket for device plugins. A socket
// that a kubelet has left refuses the connection.
func KubeletRuns(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return errors.Is(err, unix.EAGAIN) // too many connections wait
	}
	_ = c.Close() // nothing was written
	return true
}

// ClaimNode locks the node for this agent. It returns ErrOtherAgent if another
// agent has the lock, or if a kubelet listens on the socket kubelet. Any other error means
// that it is unknown whether another agent is running. socketPath is that of Config. An
// agent claims the node before it writes anything else or changes any process, so that it
// cannot disturb another agent. A kubelet does not know of the claim, and can start later.
func ClaimNode(socketPath, kubelet string) (*Claim, error) {
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
	if err == nil && !KubeletRuns(kubelet) {
		return &Claim{lock: f}, nil
	}
	_ = f.Close() // nothing was written
	if err == nil {
		return nil, fmt.Errorf("%w: a kubelet listens on %q; stop it, and keep it from starting again (it and tinylet would remove each other's pods)", ErrOtherAgent, kubelet)
	}
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
