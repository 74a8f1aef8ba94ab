package shutdown

import (
	"sync/atomic"

	"github.com/tinylet/tinylet/agent/wait"
)

// State is the state that other components share with a Manager. It exists before the
// Manager. Its methods do not block, and are safe for concurrent use.
type State struct {
	inProgress atomic.Bool
	podEnded   wait.Wakeup
}

// NewState returns the State of a node that is not shutting down.
func NewState() *State { return &State{podEnded: wait.NewWakeup()} }

// InProgress reports whether the node is shutting down: from the beginning of a
// shutdown until it is cancelled.
func (s *State) InProgress() bool { return s.inProgress.Load() }

// Notify notifies the manager that a pod may have ended.
func (s *State) Notify() { s.podEnded.Set() }
