package filewatch

import (
	"context"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// PollInterval is the interval of Follow's calls of Changed while files cannot be watched.
const PollInterval = 2 * time.Minute

// Following configures Follow. Paths, Changed and Failed are required.
type Following struct {
	// Paths returns the files to watch. It is called again after each change and
	// each receive from Moved, which may be nil.
	Paths func() []string
	Moved <-chan struct{}
	// Changed is called when the watches are placed, and after each change.
	Changed func()
	// Failed is called with the first error only. While files cannot be watched, Changed
	// is also called at PollInterval, plus up to a tenth.
	Failed func(error)
}

// Follow watches files, or polls them if that is impossible, until ctx ends.
func Follow(ctx context.Context, f Following) {
	w := New(Config{Events: Writes})
	defer w.Close()
	failed := false
	timer := time.NewTimer(PollInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		changes, _ := w.Take() // Set returns the error
		fresh, err := w.Set(f.Paths()...)
		timer.Stop()
		if err != nil {
			timer.Reset(wait.Longer(PollInterval))
		}
		if err != nil && !failed {
			failed = true
			f.Failed(err)
		}
		if fresh || changes.Any || err != nil {
			f.Changed()
		}
		select {
		case <-w.Changed():
		case <-f.Moved:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}
