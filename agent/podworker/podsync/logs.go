package podsync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
)

// logs are the directories of one pod's container logs, at the kubelet's paths
// (pkg/kubelet/kuberuntime/{helpers,legacy}.go).
type logs struct {
	ref   pod.Ref
	dir   string // the pod's log directory
	links string // the directory of the links that log collectors follow
}

func (s *Syncer) logsOf(ref pod.Ref, n *criconfig.Node) logs {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name}}
	return logs{ref: ref, dir: criconfig.LogDirectory(p, n), links: s.LogLinks}
}

// path returns the path to which the runtime writes a container's log.
func (l logs) path(containerName string, restarts int) string {
	return filepath.Join(l.dir, criconfig.LogPath(containerName, restarts))
}

// prepare creates the pod's log directory, and that of a container if
// containerName is not "".
func (l logs) prepare(containerName string) error {
	if err := os.MkdirAll(filepath.Join(l.dir, containerName), 0o755); err != nil {
		return fmt.Errorf("create log directory: %w", err)
	}
	return nil
}

// nextCount returns count, or the first number above those of all existing
// logs if that is higher. So no log is overwritten, even if the runtime has lost the
// containers of earlier attempts.
func (l logs) nextCount(containerName string, count int) int {
	entries, err := os.ReadDir(filepath.Join(l.dir, containerName))
	if err != nil {
		return count
	}
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(number); err == nil && n >= count && n < 1<<30 {
			count = n + 1
		}
	}
	return count
}

// link creates the link that log collectors follow.
func (l logs) link(containerName, containerID string, restarts int) error {
	if err := os.MkdirAll(l.links, 0o755); err != nil {
		return fmt.Errorf("create log link directory: %w", err)
	}
	link := filepath.Join(l.links, criconfig.LogLink(l.ref, containerName, containerID))
	if err := os.Symlink(l.path(containerName, restarts), link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link log of container %q: %w", containerName, err)
	}
	return nil
}

// drop removes one container's log, its rotated files and its link. If shared is true,
// another container has the same log, and only the link is removed.
func (l logs) drop(containerName, containerID string, restarts int, shared bool) error {
	errs := []error{absent(os.Remove(filepath.Join(l.links, criconfig.LogLink(l.ref, containerName, containerID))))}
	if shared {
		return errs[0]
	}
	log := l.path(containerName, restarts)
	entries, err := os.ReadDir(filepath.Dir(log))
	errs = append(errs, absent(err))
	for _, e := range entries {
		if name := e.Name(); name == filepath.Base(log) || strings.HasPrefix(name, filepath.Base(log)+".") {
			errs = append(errs, absent(os.Remove(filepath.Join(filepath.Dir(log), name))))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove log of container %q: %w", containerName, err)
	}
	return nil
}

// trim removes a container's logs with numbers below count-1, and the links to them;
// count is the number of the next log. A restart of all containers leaves such logs.
func (l logs) trim(containerName string, count int) error {
	folder := filepath.Join(l.dir, containerName)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return absent(err)
	}
	var errs []error
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(number); err != nil || n >= count-1 {
			continue
		}
		path := filepath.Join(folder, e.Name())
		errs = append(errs, l.unlink(path), absent(os.Remove(path)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old logs of container %q: %w", containerName, err)
	}
	return nil
}

// absent returns err, or nil if err means that the file does not exist.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove removes the pod's logs and the links to them. For a ref without a name, such as
// that of orphaned pod data, it finds the directory by the UID.
func (l logs) remove() error {
	var errs []error
	for _, dir := range l.dirs() {
		errs = append(errs, l.unlink(dir), os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove logs of pod %q: %w", l.ref.UID, err)
	}
	return nil
}

func (l logs) dirs() []string {
	if l.ref.Name != "" {
		return []string{l.dir}
	}
	root := filepath.Dir(l.dir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_"+string(l.ref.UID)) {
			dirs = append(dirs, filepath.Join(root, e.Name()))
		}
	}
	return dirs
}

// unlink removes the links that point to path or below it.
func (l logs) unlink(path string) error {
	entries, err := os.ReadDir(l.links)
	if err != nil {
		return absent(err)
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(l.links, e.Name())
		if target, err := os.Readlink(link); err == nil && (target == path || strings.HasPrefix(target, path+"/")) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
