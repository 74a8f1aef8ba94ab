package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// checkPath holds for the path of a file in a config volume: relative, never
// upwards, and of no name that the writer uses itself
// (pkg/volume/util/atomic_writer.go).
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
			return fmt.Errorf("invalid path: it begins with %.40q and a name in it is longer than %d bytes", path, unix.NAME_MAX)
		}
	}
	if strings.HasPrefix(clean, "..") {
		return fmt.Errorf("invalid path: must not start with '..': %q", path)
	}
	return nil
}

// checkPayload refuses a path that is a file's and a directory's at once.
func checkPayload(files payload) error {
	for path := range files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if _, file := files[dir]; file {
				return fmt.Errorf("conflicting paths: %q is a file, and a directory for %q", dir, path)
			}
		}
	}
	return nil
}
