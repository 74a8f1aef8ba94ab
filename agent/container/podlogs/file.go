package podlogs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is the kubelet's directory of pod logs.
const Root = "/var/log/pods"

// ErrNoPrevious means that there is no log of a previous container.
var ErrNoPrevious = errors.New("no log of a previous container")

// Log is the log file of one container with the highest restart count.
type Log struct {
	Namespace string
	Pod       string
	UID       string
	Container string
	Path      string
	// Modified is the file's modification time, by the node's clock at that time.
	Modified time.Time
}

// List lists the logs under root, which is Root or a tree of the same layout. It skips
// directories and files that do not follow the layout. It is for use without a running
// agent. The result may include removed pods.
func List(root string) ([]Log, error) {
	pods, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list pod logs: %w", err)
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

// FirstPath returns the path of the first log of a pod's container. The file need
// not exist. UIDs and names of the API have no slashes; others result in a
// path that does not exist.
func FirstPath(root, namespace, pod, uid, container string) string {
	return pathOf(filepath.Join(root, namespace+"_"+pod+"_"+uid, container), 0)
}

// PreviousPath returns the path of the log of the container before the one that writes to
// path. It returns an error that wraps ErrNoPrevious if there is none.
func PreviousPath(path string) (string, error) {
	number, ok := restartCountOf(filepath.Base(path))
	if !ok {
		return "", fmt.Errorf("log %q has no restart count in its name: %w", path, ErrNoPrevious)
	}
	counts := restartCounts(filepath.Dir(path))
	i, _ := slices.BinarySearch(counts, number)
	if i == 0 {
		return "", fmt.Errorf("before %q: %w", path, ErrNoPrevious)
	}
	return pathOf(filepath.Dir(path), counts[i-1]), nil
}

// newest returns the log with the highest restart count in a directory, or "" if there is
// none.
func newest(dir string) (string, fs.FileInfo) {
	counts := restartCounts(dir)
	if len(counts) == 0 {
		return "", nil
	}
	path := pathOf(dir, counts[len(counts)-1])
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	return path, info
}

// nextPath returns the path of the log of the container after the one that writes
// to path, or "".
func nextPath(path string) string {
	number, ok := restartCountOf(filepath.Base(path))
	if !ok {
		return ""
	}
	for _, n := range restartCounts(filepath.Dir(path)) {
		if n > number {
			return pathOf(filepath.Dir(path), n)
		}
	}
	return ""
}

// restartCounts returns the restart counts for which there is a log in dir, in
// ascending order.
func restartCounts(dir string) (counts []int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if n, ok := restartCountOf(e.Name()); ok && e.Type().IsRegular() {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	return counts
}

func pathOf(dir string, n int) string {
	return filepath.Join(dir, strconv.Itoa(n)+".log")
}

// restartCountOf returns the restart count in a file's name. Rotated files
// (0.log.20260102-030405) have none.
func restartCountOf(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// open opens a log, which must be a regular file. A pod that can write to the
// log directory must not be able to expose another file by a link, or to block
// the reader with a FIFO.
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
		_ = f.Close() // the first error is returned
		return nil, fmt.Errorf("open log %q: %w", path, err)
	}
	return f, nil
}
