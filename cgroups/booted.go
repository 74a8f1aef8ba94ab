package cgroups

import (
	"cmp"
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
