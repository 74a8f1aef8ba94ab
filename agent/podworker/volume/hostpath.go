package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hostPath checks that the path is what its type says, and makes it where
// the type says that too (pkg/volume/hostpath). Symbolic links are followed:
// the path is the operator's.
func hostPath(source *v1.HostPathVolumeSource) (string, error) {
	path := source.Path
	if err := plainPath(path); err != nil {
		return "", fmt.Errorf("hostPath.path: %w", err)
	}
	want := v1.HostPathUnset
	if source.Type != nil {
		want = *source.Type
	}
	if want == v1.HostPathUnset {
		return path, nil
	}
	if err := makeIfMissing(path, want); err != nil {
		return "", fmt.Errorf("make hostPath: %w", err)
	}
	return path, checkType(path, want)
}

// plainPath holds for an absolute path that never goes back.
func plainPath(path string) error {
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%q must be absolute and free of the name ..: write it out", path)
	}
	return nil
}

func checkType(path string, want v1.HostPathType) error {
	is, ok := fileTypes[want]
	if !ok {
		return fmt.Errorf("hostPath.type %q is not known", want)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: type %s: %w", want, err)
	}
	if got := info.Mode(); got.Type() != is {
		return fmt.Errorf("hostPath type check failed: %s is a %s, the type is %s", path, kind(got), want)
	}
	return nil
}

// fileTypes are the file types that the types of a hostPath stand for.
var fileTypes = map[v1.HostPathType]fs.FileMode{
	v1.HostPathDirectory:         fs.ModeDir,
	v1.HostPathDirectoryOrCreate: fs.ModeDir,
	v1.HostPathFile:              0,
	v1.HostPathFileOrCreate:      0,
	v1.HostPathSocket:            fs.ModeSocket,
	v1.HostPathCharDev:           fs.ModeDevice | fs.ModeCharDevice,
	v1.HostPathBlockDev:          fs.ModeDevice,
}

// makeIfMissing makes what there is not, where the type says so.
func makeIfMissing(path string, want v1.HostPathType) error {
	if want != v1.HostPathDirectoryOrCreate && want != v1.HostPathFileOrCreate {
		return nil
	}
	_, err := os.Stat(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case want == v1.HostPathFileOrCreate:
		return makeFile(path, 0o644)
	default:
		return os.MkdirAll(path, 0o755)
	}
}

// makeFile makes an empty file where there is nothing at all.
func makeFile(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// kind names a file's type for people.
func kind(mode fs.FileMode) string {
	if name, ok := kinds[mode.Type()]; ok {
		return name
	}
	return "special file"
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
