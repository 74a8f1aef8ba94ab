package board

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// keepImages is how many images of each kind of board prune leaves: those used
// last.
const keepImages = 2

// use marks an image as in use now, for as long as the file stays open.
func use(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "use"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("use image: %w", err)
	}
	now := time.Now()
	err = errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_SH), os.Chtimes(f.Name(), now, now))
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("use image: %w", err)
	}
	return f, nil
}

// prune deletes from the cache what no such board needs any more. The caller
// holds the cache's lock, so no image is under way.
func prune(cache string, o Options, containerd []string) error {
	images, err := ofKind(filepath.Join(cache, "image"), o.kind())
	if err != nil {
		return err
	}
	used := map[string]time.Time{} // an unfinished one was never used
	for _, dir := range images {
		info, err := os.Stat(filepath.Join(dir, "use"))
		if err == nil {
			used[dir] = info.ModTime()
		}
	}
	slices.SortFunc(images, func(x, y string) int {
		return cmp.Or(used[y].Compare(used[x]), cmp.Compare(x, y))
	})
	for i, dir := range images {
		if _, finished := used[dir]; finished && (i < keepImages || inUse(dir)) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete old image: %w", err)
		}
	}
	builds, err := ofKind(filepath.Join(cache, "containerd"), string(o.Arch))
	if err != nil {
		return err
	}
	for _, dir := range builds {
		if slices.Contains(containerd, dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete old build of containerd: %w", err)
		}
	}
	return nil
}

// inUse reports whether a process uses an image. On doubt it does.
func inUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "use"))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // another user's
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// ofKind lists the entries of a folder that are named after a kind of board.
func ofKind(dir, kind string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look into the cache: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), kind+"-") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// scratch makes a folder for a machine that runs. sweep leaves it as long as
// the file is open.
func scratch() (dir string, hold *os.File, err error) {
	if dir, err = os.MkdirTemp("", "board-"); err != nil {
		return "", nil, err
	}
	if hold, err = use(dir); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, hold, nil
}

// sweep deletes the folders of machines whose processes were killed.
func sweep() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "board-*"))
	if err != nil {
		return fmt.Errorf("look for old machines: %w", err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "use")); err != nil || inUse(dir) {
			continue // about to be used, or somebody else's
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete old machine: %w", err)
		}
	}
	return nil
}
