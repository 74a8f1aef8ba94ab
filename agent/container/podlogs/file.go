package podlogs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the kubelet keeps the logs of pods.
const Root = "/var/log/pods"

// ErrNoPrevious says that there is no log of an earlier container.
var ErrNoPrevious = errors.New("no log of an earlier container")

// Log is the newest log file of one container.
type Log struct {
	Namespace string
	Pod       string
	UID       string
	Container string
	Path      string
	// Modified is when the file was last written, by the clock of then.
	Modified time.Time
}

// List finds the logs under root, which is Root or a tree like it. Folders
// and files that do not follow the layout are passed over. It serves when no
// agent can be asked; pods of the past may be among those found.
func List(root string) ([]Log, error) {
	pods, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list the logs of pods: %w", err)
	}
	var out []Log
	for _, pod := range pods {
		parts := strings.Split(pod.Name(), "_")
		if !pod.IsDir() || len(parts) != 3 {
			continue
		}
		containers, err := os.ReadDir(filepath.Join(root, pod.Name()))
		if err != nil {
			continue // removed meanwhile
		}
		for _, c := range containers {
			dir := filepath.Join(root, pod.Name(), c.Name())
			path, info := newest(dir)
			if !c.IsDir() || path == "" {
				continue
			}
			out = append(out, Log{
				Namespace: parts[0], Pod: parts[1], UID: parts[2],
				Container: c.Name(), Path: path, Modified: info.ModTime(),
			})
		}
	}
	return out, nil
}

// First is the log of a pod's first container of that name, whether or not it
// is there. UIDs and names of the API hold no slashes; others give a path
// that is not there.
func First(root, namespace, pod, uid, container string) string {
	return numbered(filepath.Join(root, namespace+"_"+pod+"_"+uid, container), 0)
}

// Previous is the log of the container before the one that writes to path.
// It fails with ErrNoPrevious where that is gone or never was.
func Previous(path string) (string, error) {
	number, ok := numberOf(filepath.Base(path))
	if !ok {
		return "", fmt.Errorf("log %q has no number of restarts: %w", path, ErrNoPrevious)
	}
	best := -1
	for n := range numbers(filepath.Dir(path)) {
		if n < number {
			best = max(best, n)
		}
	}
	if best < 0 {
		return "", fmt.Errorf("before %q: %w", path, ErrNoPrevious)
	}
	return numbered(filepath.Dir(path), best), nil
}

// newest is the log with the highest number of restarts in a folder, or "".
func newest(dir string) (string, fs.FileInfo) {
	best := -1
	for n := range numbers(dir) {
		best = max(best, n)
	}
	if best < 0 {
		return "", nil
	}
	path := numbered(dir, best)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	return path, info
}

// following is the log of the next container after the one with number, or
// "".
func following(dir string, number int) string {
	best := -1
	for n := range numbers(dir) {
		if n > number && (best < 0 || n < best) {
			best = n
		}
	}
	if best < 0 {
		return ""
	}
	return numbered(dir, best)
}

// numbers yields the numbers of restarts for which there is a log in dir.
func numbers(dir string) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if n, ok := numberOf(e.Name()); ok && e.Type().IsRegular() && !yield(n) {
				return
			}
		}
	}
}

func numbered(dir string, n int) string {
	return filepath.Join(dir, strconv.Itoa(n)+".log")
}

// numberOf reads the number of restarts from a file's name; rotated files
// (0.log.20260102-030405) have none.
func numberOf(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// open opens a log. It must be a regular file: a pod that can write to the
// log folder must not have another file read by a link, nor stop the reader
// with a pipe.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = f.Close() // the first error is told
		return nil, fmt.Errorf("open log %q: %w", path, err)
	}
	return f, nil
}
