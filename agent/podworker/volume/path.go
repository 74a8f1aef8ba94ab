package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// checkPath returns an error for an invalid path of a file in a config volume. The
// path must be relative, must not have a ".." component, and must not begin with
// "..", which the writer uses itself (pkg/volume/util/atomic_writer.go).
func checkPath(path string) error {
	clean := filepath.Clean(path)
	switch {
	case path == "" || clean == ".":
		return errors.New("invalid path: must not be empty")
	case path[0] == '/':
		return fmt.Errorf("invalid path: must be relative: %q", path)
	case len(path) >= unix.PathMax:
		return fmt.Errorf("invalid path: longer than %d bytes", unix.PathMax-1)
	case strings.IndexByte(path, 0) >= 0:
		return fmt.Errorf("invalid path: %q has a zero byte", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "..":
			return fmt.Errorf("invalid path: must not contain '..': %q", path)
		case len(name) > unix.NAME_MAX:
			return fmt.Errorf("invalid path: a name in the path starting with %.40q is longer than %d bytes", path, unix.NAME_MAX)
		}
	}
	if strings.HasPrefix(clean, "..") {
		return fmt.Errorf("invalid path: must not start with '..': %q", path)
	}
	return nil
}

// checkPayload returns an error if a path is both a file and a directory.
func checkPayload(files payload) error {
	for path := range files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if _, file := files[dir]; file {
				return fmt.Errorf("conflicting paths: %q is both a file and the directory of %q", dir, path)
			}
		}
	}
	return nil
}
