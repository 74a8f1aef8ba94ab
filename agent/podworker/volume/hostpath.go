package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// hostPath checks that the path has its type, and creates it if the type is one
// of the OrCreate types (pkg/volume/hostpath). It follows symbolic links, because
// the path is set by the operator.
func hostPath(source *v1.HostPathVolumeSource) (string, error) {
	path := source.Path
	if err := checkHostPath(path); err != nil {
		return "", fmt.Errorf("hostPath.path: %w", err)
	}
	want := ptr.Deref(source.Type, v1.HostPathUnset)
	if want == v1.HostPathUnset {
		return path, nil
	}
	if err := createIfMissing(path, want); err != nil {
		return "", fmt.Errorf("create hostPath: %w", err)
	}
	return path, checkType(path, want)
}

// checkHostPath returns an error unless path is absolute and has no ".." component.
func checkHostPath(path string) error {
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%q must be absolute and must not contain '..'", path)
	}
	return nil
}

func checkType(path string, want v1.HostPathType) error {
	is, ok := fileTypes[want]
	if !ok {
		return fmt.Errorf("unknown hostPath.type %q", want)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: type %s: %w", want, err)
	}
	if got := info.Mode(); got.Type() != is {
		return fmt.Errorf("hostPath type check failed: %s is a %s, the type is %s", path, fileTypeName(got), want)
	}
	return nil
}

// fileTypes maps the types of a hostPath to file types.
var fileTypes = map[v1.HostPathType]fs.FileMode{
	v1.HostPathDirectory:         fs.ModeDir,
	v1.HostPathDirectoryOrCreate: fs.ModeDir,
	v1.HostPathFile:              0,
	v1.HostPathFileOrCreate:      0,
	v1.HostPathSocket:            fs.ModeSocket,
	v1.HostPathCharDev:           fs.ModeDevice | fs.ModeCharDevice,
	v1.HostPathBlockDev:          fs.ModeDevice,
}

// createIfMissing creates a missing directory or file for the OrCreate types.
func createIfMissing(path string, want v1.HostPathType) error {
	if want != v1.HostPathDirectoryOrCreate && want != v1.HostPathFileOrCreate {
		return nil
	}
	_, err := os.Stat(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case want == v1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // O_EXCL rejects a dangling symbolic link
		if err != nil {
			return err
		}
		return f.Close()
	default:
		return os.MkdirAll(path, 0o755)
	}
}

// fileTypeName returns the name of a file's type for messages.
func fileTypeName(mode fs.FileMode) string {
	return cmp.Or(kinds[mode.Type()], "special file")
}

var kinds = map[fs.FileMode]string{
	0:                                 "file",
	fs.ModeDir:                        "directory",
	fs.ModeSymlink:                    "symbolic link",
	fs.ModeSocket:                     "socket",
	fs.ModeNamedPipe:                  "named pipe",
	fs.ModeDevice | fs.ModeCharDevice: "character device",
	fs.ModeDevice:                     "block device",
}
