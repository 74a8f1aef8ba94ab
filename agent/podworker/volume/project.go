package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The names that the writer uses itself. Containers see symbolic links:
//
//	name                 -> ..data/name
//	..data               -> ..2006_01_02_15_04_05.123456789
//	..2006_..123456789/  the files
//
// An update creates a new directory and renames a link over ..data, so that all
// files change at once for a container (pkg/volume/util/atomic_writer.go).
const (
	dataLink  = "..data"
	dataTemp  = "..data_tmp"
	dataStamp = "..2006_01_02_15_04_05."
)

// Modes of directories and files that the writer creates.
const (
	dataDirMode fs.FileMode = 0o755
	// groupReadFile and groupReadDir are the bits that an fsGroup adds to a
	// read-only volume (pkg/volume/volume_linux.go).
	groupReadFile fs.FileMode = 0o440
	groupReadDir              = fs.ModeSetgid | 0o550
)

// config sets up a configMap, secret, downwardAPI or projected volume. All but
// configMap volumes are on a tmpfs, so that secrets are not written to the disk.
func (s *setup) config(ctx context.Context, volume *v1.Volume) (string, error) {
	files, err := s.collect(ctx, &volume.VolumeSource)
	if err != nil {
		return "", err
	}
	plugin := pluginDir(&volume.VolumeSource)
	rel, err := s.dir(plugin, volume.Name)
	if err != nil {
		return "", err
	}
	group, grouped := s.fsGroup()
	err = s.makeDir(rel, func() error { return s.setMode(rel, emptyDirMode, groupReadDir) })
	if err != nil {
		return "", err
	}
	if plugin != dirConfigMap {
		var options []string
		if grouped {
			options = []string{fmt.Sprintf("gid=%d", group), "mode=3777"}
		}
		if err := s.v.tmpfs(s.path(rel), options); err != nil {
			return "", err
		}
	}
	dir, err := s.pods.OpenRoot(rel)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if s.buffer == nil {
		s.buffer = make([]byte, 16<<10)
	}
	w := &writer{dir: dir, group: group, buffer: s.buffer, nested: nestedMounts(s.pod, volume.Name)}
	if err := w.write(files); err != nil {
		return "", fmt.Errorf("write files: %w", err)
	}
	return s.path(rel), nil
}

// writer updates one directory to a payload. If the agent is killed after any
// step, containers see either the old files or the new ones, and the next write
// continues. The writer does not sync: each Setup compares the files, so a file that a
// power cut damaged is written again before a container starts.
type writer struct {
	dir    *os.Root
	group  int      // -1 means none
	nested []string // paths at which containers mount other volumes
	buffer []byte
}

func (w *writer) write(files payload) error {
	for _, path := range w.nested {
		// If a file or link of the payload is there, the start of the container
		// fails.
		if err := w.dir.MkdirAll(path, dataDirMode); err != nil && !errorIsAny(err, unix.EEXIST, unix.ENOTDIR, unix.ELOOP) {
			return fmt.Errorf("create nested mount point %q: %w", path, err)
		}
	}
	current, err := w.dir.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if isTimestampDir(current) {
		switch same, visible := w.compare(current, files); {
		case same && visible:
			return nil
		case !same:
			current = ""
		}
	}
	if !isTimestampDir(current) {
		if current, err = w.publish(files); err != nil {
			return err
		}
	}
	names, err := w.names()
	if err != nil {
		return err
	}
	if err := w.link(names, files); err != nil {
		return err
	}
	return w.clean(names, current, files)
}

// names returns the names in the volume's directory.
func (w *writer) names() ([]string, error) {
	d, err := w.dir.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// isTimestampDir reports whether a name is one of the writer's timestamped directories.
func isTimestampDir(name string) bool {
	return strings.HasPrefix(name, "..2") && checkComponent(name) == nil
}

// modeOf returns a file's mode, with the bits that an fsGroup adds.
func (w *writer) modeOf(want content) fs.FileMode {
	if w.group >= 0 {
		return want.mode | groupReadFile
	}
	return want.mode
}

// publish writes the payload to a new directory and makes it the current one.
func (w *writer) publish(files payload) (stamp string, err error) {
	stamp = time.Now().UTC().Format(dataStamp) + fmt.Sprint(rand.Uint32())
	if err := w.makeDir(stamp); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = w.dir.RemoveAll(stamp) // if this fails, the next write does it
		}
	}()
	for path, file := range files {
		if err := w.file(stamp, path, file); err != nil {
			return "", err
		}
	}
	if err := w.dir.Remove(dataTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := w.dir.Symlink(stamp, dataTemp); err != nil {
		return "", err
	}
	return stamp, w.dir.Rename(dataTemp, dataLink)
}

// makeDir creates one directory of the payload.
func (w *writer) makeDir(path string) error {
	if err := w.dir.Mkdir(path, 0o700); err != nil {
		return err
	}
	mode := dataDirMode
	if w.group >= 0 {
		if err := w.dir.Lchown(path, -1, w.group); err != nil {
			return err
		}
		mode |= groupReadDir
	}
	return w.dir.Chmod(path, mode)
}

// file writes one file and the directories above it.
func (w *writer) file(stamp, path string, file content) error {
	dir := stamp
	names := strings.Split(path, "/")
	for _, name := range names[:len(names)-1] {
		dir = filepath.Join(dir, name)
		if err := w.makeDir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	f, err := w.dir.OpenFile(filepath.Join(stamp, path), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.data)
	if err == nil && (file.user >= 0 || w.group >= 0) {
		err = f.Chown(file.user, w.group)
	}
	if err == nil {
		err = f.Chmod(w.modeOf(file)) // after Chown, which clears bits
	}
	return errors.Join(err, f.Close())
}

// link creates the links that containers see. names are the names in the
// directory.
func (w *writer) link(names []string, files payload) error {
	for path, file := range files {
		name, _, _ := strings.Cut(path, "/")
		if slices.Contains(names, name) {
			continue // a link of the writer, or a nested mount point
		}
		err := w.dir.Symlink(filepath.Join(dataLink, name), name)
		if errors.Is(err, fs.ErrExist) {
			continue // created for another file below it
		}
		if err == nil && file.user >= 0 {
			err = w.dir.Lchown(name, file.user, -1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clean removes links to files that no longer exist, and orphaned files of
// earlier writes.
func (w *writer) clean(names []string, current string, files payload) error {
	for _, name := range names {
		var err error
		switch {
		case name == dataLink, name == current:
		case name == dataTemp:
			err = w.dir.Remove(name)
		case isTimestampDir(name):
			err = w.dir.RemoveAll(name)
		case !hasPath(files, []byte(name)) && w.isWriterLink(name):
			err = w.dir.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func errorIsAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}
