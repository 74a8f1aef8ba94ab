package cgroups

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// SystemdRuns says whether systemd is process 1 of the system whose file
// system is at root, "/" where it is "" (sd_booted(3)).
func SystemdRuns(root string) bool {
	info, err := os.Lstat(filepath.Join(cmp.Or(root, "/"), bootedFolder))
	return err == nil && info.IsDir()
}

// AskSystemd fails with ErrNoSystemd or ErrUnanswered where Slices cannot
// work. It blocks for some seconds at most.
func AskSystemd(root string) error {
	s := newSystemd(cmp.Or(root, "/"))
	defer s.close()
	return s.use(func(*link) error { return nil })
}

// AskSystemBus fails where systemd is not reached over the system bus, which
// Slices does without and crun does not. It blocks for some seconds at most.
func AskSystemBus(root string) error {
	s := newSystemd(cmp.Or(root, "/"))
	defer s.close()
	l, err := s.dial(filepath.Join(s.root, BusSocket), true)
	if err != nil {
		return fmt.Errorf("ask systemd over the system bus: %w", err)
	}
	l.close()
	return nil
}
