package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Claim makes this agent the node's only one, or fails with ErrOtherAgent.
// Run does it too; an agent that claims before it looks at any pod cannot
// disturb the other's. A claim ends with Run or with the process, however
// that ends. Calling it again does nothing.
//
// The claim is a lock on a file beside the socket: unlike a process id or
// the socket itself it cannot be left behind by an agent that was killed.
func (s *Server) Claim() error {
	if s.lock != nil {
		return nil
	}
	path := s.config.SocketPath + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("claim the node: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("claim the node: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		s.lock = f
		return nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: it holds %q; stop it first (two agents would start every pod twice)", ErrOtherAgent, path)
	}
	return fmt.Errorf("claim the node: lock %q: %w", path, err)
}

// release ends the claim. The file stays: removing it would race with an
// agent that has just opened it.
func (s *Server) release() {
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written
		s.lock = nil
	}
}
